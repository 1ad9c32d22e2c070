"""The streams part of the campaign: a million of the commands with optimized code paths, against Redis
8.2.3.

Half of the histories run in a node in this process, piece by piece, half over a server's socket; one in
twenty is large. The seed determines all of that, so that a history can be repeated:

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
from tests.conformance.pipelines import LocalPipeline, Pipeline, SocketPipeline

SERVER = "redis-8.2"
SMALL, LARGE = 1500, 6000
"""Judged commands of a history."""


class Comparison:
    """Both stores, for any number of histories. `close` stops what it has started."""

    def __init__(self, server: peers.Peer) -> None:
        self.server = server
        self.counted: Counter[str] = Counter()
        self._theirs = SocketPipeline(server)
        self._stack = ExitStack()
        self._thread: ServerThread | None = None
        self._socket: SocketPipeline | None = None

    def close(self) -> None:
        """Close the connections and stop Headwater's server."""
        self._theirs.close()
        self._drop()

    def differs(self, seed: int) -> str:
        """Describe the difference in the history of a seed, shrunk; empty if there is none."""
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
        """Return how many of the commands that ran are the campaign's subject."""
        return sum(self.counted[name.decode()] for name in JUDGED)

    def _ours(self, seed: int) -> Pipeline:
        if seed // 2 % 2:
            return LocalPipeline()
        if self._socket is None:
            config = Config(port=0, appendonly=False, save=())
            self._thread = self._stack.enter_context(server_thread(config))
            self._socket = SocketPipeline(self._thread)
        return self._socket

    def _renew(self) -> None:
        """Open new connections, so that unread replies do not affect the next history."""
        self._theirs.socket.close()
        self._theirs = SocketPipeline(self.server)
        self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.socket.close()
        self._stack.close()
        self._socket = self._thread = None


def streams(seed: int, commands: int) -> dict[str, Any]:
    """Run histories until ``commands`` were judged. Return statistics and failures."""
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
