"""Servers that a test kills and starts again at the same address, with the same data."""

from __future__ import annotations

import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from headwater.testing.server import ServerProcess, server_process
from tests import peers
from tests.alarms import alarms_in
from tests.waiting import PATIENCE_SECONDS


class Restarting(ABC):
    """One server. ``url`` does not change when it restarts."""

    url: str
    arguments: tuple[str, ...] = ()
    """Arguments for the peer's command line at its next start."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it by SIGKILL."""

    @abstractmethod
    def start(self) -> None:
        """Start it again. Returns when it accepts commands."""

    def look(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)

    def alarms(self) -> list[str]:
        """Return the alarms in the log of a server of ours (`tests.alarms`): no kill may cause any."""
        return []

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Start it again while the block runs. Leaving the block waits for the start to complete."""
        thread = threading.Thread(target=self.start)
        thread.start()
        try:
            yield
        finally:
            thread.join(PATIENCE_SECONDS)


class _Headwater(Restarting):
    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.url = server.url

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def alarms(self) -> list[str]:
        return alarms_in(self._server.log())


class _Peer(Restarting):
    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory
        self._server = self._launch(0)
        self.url = self._server.url

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server = self._launch(self._server.port)

    def _launch(self, port: int) -> peers.Peer:
        durable = ("--appendonly", "yes", "--appendfsync", "always")
        return peers.start(
            self._name, *durable, *self.arguments, directory=self._directory, port=port
        )


CHECKPOINTS = "headwater with checkpoints"
"""A server that writes one image after the other, all the time."""

_FLAGS = {
    "headwater": (),
    CHECKPOINTS: ("--auto-aof-rewrite-min-size", "64kb", "--auto-aof-rewrite-percentage", "10"),
}


@contextmanager
def restarting(name: str) -> Iterator[Restarting]:
    """A new server. Raises `peers.PeerMissing`."""
    if name in _FLAGS:
        with server_process("--appendfsync", "always", *_FLAGS[name]) as server:
            yield _Headwater(server)
        return
    directory = Path(tempfile.mkdtemp(prefix="hw-again-"))
    try:
        server_of_peer = _Peer(name, directory)
        try:
            yield server_of_peer
        finally:
            server_of_peer.kill()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
