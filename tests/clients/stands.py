"""Where clients are tried: Headwater, and the Redis whose answers are the measure. Both are started
once for all tests of a process, keep their data when they are killed, and come back at the same
ports."""

from __future__ import annotations

import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from headwater.testing.server import ServerProcess, server_process
from tests import certificates, peers
from tests.certificates import Certificates

MEASURE = "redis-8.2"


@dataclass(frozen=True)
class Where:
    """What a client is told. ``tls`` holds the files of the authority and of the client."""

    port: int
    tls: Certificates | None = None
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"{'rediss' if self.tls else 'redis'}://{self.host}:{self.port}"

    @property
    def ssl_options(self) -> dict[str, str]:
        """What redis-py and its kin take beside the url."""
        return self.tls.client_options if self.tls else {}


class Stand(ABC):
    """A server that tests share; each begins with `empty`."""

    def __init__(self, port: int, made: Certificates | None = None, tls_port: int = 0) -> None:
        self.where = Where(port)
        self.secured = Where(tls_port, made)

    @abstractmethod
    def restart(self) -> None:
        """Kill the server and start it again, with the same data at the same ports."""

    def look(self) -> redis.Redis:
        """A client for looking on, which is none of those that are tried."""
        return redis.Redis(port=self.where.port, decode_responses=True)

    def empty(self) -> None:
        """Forget all data."""
        with self.look() as look:
            look.flushall()

    def wait_for_blocked(self, count: int = 1) -> None:
        """Wait until so many clients wait for something."""
        with self.look() as look:
            while sum("b" in one["flags"] for one in look.client_list()) < count:
                time.sleep(0.001)  # nothing announces it


class HeadwaterStand(Stand):
    def __init__(self, server: ServerProcess, made: Certificates) -> None:
        super().__init__(server.port, made, server.tls_port)
        self._server = server

    def restart(self) -> None:
        self._server.kill()
        self._server.start()


class PeerStand(Stand):
    def __init__(self, port: int, directory: Path) -> None:
        super().__init__(port)
        self._directory = directory
        self._server = self._start()

    def restart(self) -> None:
        self._server.kill()
        self._server = self._start()

    def stop(self) -> None:
        self._server.stop()

    def _start(self) -> peers.Peer:
        keeping = ("--appendonly", "yes", "--appendfsync", "always")
        return peers.start(MEASURE, *keeping, directory=self._directory, port=self.where.port)


@contextmanager
def headwater_stand() -> Iterator[HeadwaterStand]:
    """Headwater at a port for plain text and one for TLS, which takes a certificate if there is
    one: not every client can show it."""
    directory = Path(tempfile.mkdtemp(prefix="hw-tls-"))
    try:
        made = certificates.make(directory)
        tls = made.flags(tls_port=peers.free_port(), auth_clients="optional")
        with server_process("--port", str(peers.free_port()), *tls) as server:
            yield HeadwaterStand(server, made)
    finally:
        shutil.rmtree(directory)


@contextmanager
def peer_stand() -> Iterator[PeerStand]:
    """The real Redis. Raises `peers.PeerMissing`."""
    directory = Path(tempfile.mkdtemp(prefix="hw-measure-"))
    try:
        stand = PeerStand(peers.free_port(), directory)
        try:
            yield stand
        finally:
            stand.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
