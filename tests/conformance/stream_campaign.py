"""The part of the campaign about streams: a million of the commands that a hot path has, against
Redis 8.2.3.

Half of the histories go into a node in this process, receive by receive, half through a server's socket;
one in twenty is large. A seed decides all of that and runs again by itself:

    python -m tests.conformance.campaign --only streams --seed 5017 --streams 1
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Any

from headwater.config.config import Config
from headwater.testing.server import ServerThread, server_thread
from tests import peers
from tests.conformance.agreement import Unlike, explained, first_unlike
from tests.conformance.histories_streams import JUDGED, StreamHistory, Unit
from tests.conformance.pipelines import Door, NodeDoor, SocketDoor

SERVER = "redis-8.2"
SMALL, LARGE = 1500, 6000
"""Judged commands of one history."""


class Comparison:
    """Both stores, for as many histories as one likes; ends what it has started."""

    def __init__(self, server: peers.Peer) -> None:
        self.server = server
        self.counted: Counter[str] = Counter()
        self._theirs = SocketDoor(server)
        self._stack = ExitStack()
        self._thread: ServerThread | None = None
        self._socket: SocketDoor | None = None

    def close(self) -> None:
        """Hang up, and end our own server."""
        self._theirs.close()
        self._drop()

    def differs(self, seed: int) -> str:
        """What differs in the history of a seed, shrunk; empty when nothing does."""
        large = seed % 20 == 7
        history = StreamHistory(seed, SERVER, large=large)
        units = history.units(LARGE if large else SMALL)
        self.counted.update(command[0].decode() for unit in units for command in unit.commands)

        def again(shorter: list[Unit]) -> Unlike | None:
            unlike = first_unlike(shorter, seed, self._ours(seed), self._theirs, server=SERVER)
            if unlike is not None:
                self._renew()
            return unlike

        unlike = again(units)
        return "" if unlike is None else explained(units, unlike, again)

    def judged(self) -> int:
        """How many of the commands counted that the campaign is about."""
        return sum(self.counted[name.decode()] for name in JUDGED)

    def _ours(self, seed: int) -> Door:
        if seed // 2 % 2:
            return NodeDoor()
        if self._socket is None:
            config = Config(port=0, appendonly=False)
            self._thread = self._stack.enter_context(server_thread(config))
            self._socket = SocketDoor(self._thread)
        return self._socket

    def _renew(self) -> None:
        """What a difference leaves in the line is no part of the next history."""
        self._theirs.socket.close()
        self._theirs = SocketDoor(self.server)
        self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.socket.close()
        self._stack.close()
        self._socket = self._thread = None


def streams(seed: int, commands: int) -> dict[str, Any]:
    """Histories until so many commands were judged; what was done and what differed."""
    found: dict[str, Any] = {"first_seed": seed, "server": SERVER, "failures": []}
    with peers.running(SERVER, unixsocket=True) as server:
        comparison = Comparison(server)
        try:
            while comparison.judged() < commands:
                what = comparison.differs(seed)
                if what:
                    found["failures"].append({"seed": seed, "server": SERVER, "what": what})
                seed += 1
                if seed % 100 == 0:
                    _say(comparison, found)
        finally:
            comparison.close()
    _say(comparison, found)
    return {
        **found,
        "last_seed": seed - 1,
        "commands": comparison.judged(),
        "between": comparison.counted.total() - comparison.judged(),
        "by_command": dict(sorted(comparison.counted.items())),
    }


def _say(comparison: Comparison, found: dict[str, Any]) -> None:
    print(f"streams: {comparison.judged()} commands, {len(found['failures'])} failures", flush=True)
