"""The time from starting the process to the first PONG, with a million entries, all pending.

Every server was shut down cleanly before. Redis and Valkey read their append-only file; Redis is also measured
with a snapshot (RDB). An empty server is started too, to show how much of the time is due to the data.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from benchmarks.rows import OWN_VALUE, REDIS, Row, Target
from benchmarks.selection import Selection
from benchmarks.stores import KINDS, Kind, Store, cores, durability, on_cores
from benchmarks.workloads import FIELDS_5
from headwater.testing.server import ServerProcess
from tests import peers

ENTRIES: Final = 1_000_000
NAME: Final = "start with 1M entries, 1M pending"
TIMEOUT_SECONDS: Final = 300.0
"""How long a server may take to start."""

SNAPSHOT: Final = Kind(f"{REDIS} (RDB)", peer=REDIS)
"""Redis without an append-only file: it saves a snapshot when it shuts down."""


class RestartableServer(Protocol):
    """A server that is restarted several times with the same data."""

    port: int

    @property
    def pid(self) -> int:
        """The id of the running process."""

    def launch(self) -> None:
        """Start the server without waiting for it."""

    def end(self) -> None:
        """Shut the server down cleanly."""


class _Ours:
    """Headwater, with an append-only file that is flushed every second."""

    def __init__(self, directory: Path) -> None:
        self._server = ServerProcess(*durability("everysec", peer=False), directory=directory)
        self._server.port = self.port = peers.free_port()

    @property
    def pid(self) -> int:
        return self._server.pid

    def launch(self) -> None:
        self._server.launch()

    def end(self) -> None:
        self._server.stop()


class _Peer:
    """Redis or Valkey: with an append-only file, or for `SNAPSHOT` with an RDB file only."""

    def __init__(self, kind: Kind, directory: Path) -> None:
        assert kind.peer is not None
        executable = peers.path(kind.peer)
        assert executable is not None, "the caller checks that it is available"
        self.port = peers.free_port()
        self._snapshot = kind is SNAPSHOT
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [
            str(executable), "--port", str(self.port), "--bind", "127.0.0.1",
            "--dir", str(directory), "--save", "",
            *durability(None if self._snapshot else "everysec"),
        ]  # fmt: skip

    @property
    def pid(self) -> int:
        assert self._process is not None, "call launch() first"
        return self._process.pid

    def launch(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def end(self) -> None:
        assert self._process is not None, "call launch() first"
        if self._process.poll() is None:
            word = b"SAVE" if self._snapshot else b"NOSAVE"
            with socket.create_connection(("127.0.0.1", self.port), timeout=60) as link:
                link.sendall(b"SHUTDOWN " + word + b"\r\n")
                link.recv(1024)
        self._process.wait(60)


def rows(selection: Selection) -> Iterator[Row]:
    """Yield the row. Its additional measurement ``empty_s`` is the start without data, in seconds."""
    if not selection.wants(NAME):
        return
    row = Row(
        "restart", NAME, "s", better="less", target=Target(0.4, 0.1, by=OWN_VALUE, judged=False)
    )
    with tempfile.TemporaryDirectory(prefix="hw-") as scratch:
        servers = [
            (kind.name, _prepared(kind, Path(scratch) / str(at)))
            for at, kind in enumerate((*KINDS, SNAPSHOT))
            if kind.available()
        ]
        for _ in range(selection.rounds):
            for name, (full, empty) in servers:
                row.of(name).add(_start_seconds(full), empty_s=_start_seconds(empty))
    yield row


def _prepared(kind: Kind, directory: Path) -> tuple[RestartableServer, RestartableServer]:
    """Return a server with its data and one without, both shut down."""
    full, empty = (_new_server(kind, directory / word) for word in ("full", "empty"))
    with _running(full):
        store = Store(kind.name, "127.0.0.1", full.port, full.pid, cores()[1])
        store.fill("bench:restart", ENTRIES, FIELDS_5)
        store.deliver("bench:restart", "g", ENTRIES)
        store.wait_idle()
    return full, empty


def _new_server(kind: Kind, directory: Path) -> RestartableServer:
    directory.mkdir(parents=True)
    return _Ours(directory) if kind.peer is None else _Peer(kind, directory)


@contextmanager
def _running(server: RestartableServer) -> Iterator[float]:
    """Run the server inside the block; yield the seconds until its first PONG."""
    with on_cores({cores()[0]}):
        began = time.perf_counter()
        server.launch()
    try:
        _await_pong(server.port)
        yield time.perf_counter() - began
    finally:
        server.end()


def _start_seconds(server: RestartableServer) -> float:
    """Start the server, shut it down, and return the seconds from its start to its first PONG."""
    with _running(server) as seconds:
        return seconds


def _await_pong(port: int) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as link:
                link.sendall(b"PING\r\n")
                if link.recv(64).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        time.sleep(0.001)
    raise TimeoutError(f"no PONG at port {port} within {TIMEOUT_SECONDS:.0f} seconds")
