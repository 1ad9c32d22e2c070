"""The servers for the tests of clients: Headwater, and the Redis whose replies are the reference. Both are
started once for all tests of a process. They keep their data and their ports when they are killed and
restarted."""

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

REFERENCE = "redis-8.2"


@dataclass(frozen=True)
class ServerAddress:
    """The address that a client connects to. ``tls`` has the files of the authority and of the client."""

    port: int
    tls: Certificates | None = None
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"{'rediss' if self.tls else 'redis'}://{self.host}:{self.port}"

    @property
    def ssl_options(self) -> dict[str, str]:
        """Options that redis-py and similar clients need in addition to the url."""
        return self.tls.client_options if self.tls else {}


class SharedServer(ABC):
    """A server that tests share; each test begins with `empty`."""

    def __init__(self, port: int, made: Certificates | None = None, tls_port: int = 0) -> None:
        self.address = ServerAddress(port)
        self.tls_address = ServerAddress(tls_port, made)

    @abstractmethod
    def restart(self) -> None:
        """Kill the server and start it again, with the same data and the same ports."""

    def observer(self) -> redis.Redis:
        """Return a client of redis-py that observes the server; it is not under test."""
        return redis.Redis(port=self.address.port, decode_responses=True)

    def empty(self) -> None:
        """Delete all data."""
        with self.observer() as observer:
            observer.flushall()

    def wait_for_blocked(self, count: int = 1) -> None:
        """Wait until ``count`` clients are blocked."""
        with self.observer() as observer:
            while sum("b" in one["flags"] for one in observer.client_list()) < count:
                time.sleep(0.001)  # there is no notification


class SharedHeadwater(SharedServer):
    def __init__(self, server: ServerProcess, made: Certificates) -> None:
        super().__init__(server.port, made, server.tls_port)
        self._server = server

    def restart(self) -> None:
        self._server.kill()
        self._server.start()


class SharedRedis(SharedServer):
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
        return peers.start(REFERENCE, *keeping, directory=self._directory, port=self.address.port)


@contextmanager
def shared_headwater() -> Iterator[SharedHeadwater]:
    """Run Headwater with a plain port and a TLS port. Client certificates are optional, because not every
    client supports them."""
    directory = Path(tempfile.mkdtemp(prefix="hw-tls-"))
    try:
        made = certificates.make(directory)
        tls = made.flags(tls_port=peers.free_port(), auth_clients="optional")
        with server_process("--port", str(peers.free_port()), *tls) as server:
            yield SharedHeadwater(server, made)
    finally:
        shutil.rmtree(directory)


@contextmanager
def shared_redis() -> Iterator[SharedRedis]:
    """Run the real Redis. Raises `peers.PeerMissing`."""
    directory = Path(tempfile.mkdtemp(prefix="hw-reference-"))
    try:
        server = SharedRedis(peers.free_port(), directory)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
