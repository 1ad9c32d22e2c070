"""Servers with a data directory that outlives them: started, stopped, killed and started again.

    with stored(kind, directory, *arguments) as server:
        seconds = server.start()              # to the first PONG
        server.store().fill(…)
        server.shut_down()  or  server.kill()

Rule 1. A server is ended by its own process, whatever happens in the block.
Rule 2. Nothing is skipped: what cannot be measured raises `Unmeasured`, and its row fails with the reason.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import redis

from benchmarks.load import LoadFailed
from benchmarks.stores import KINDS, Kind, Store, begin_no_rewrites, cores, durability, on_cores
from tests import peers

STORES: Final = KINDS[:3]
"""Headwater, Redis 8.2 and Valkey 9.1."""

START_SECONDS: Final = 600.0
STOP_SECONDS: Final = 900.0
"""A clean stop may write a snapshot of a hundred million entries."""

FILL_AT_ONCE: Final = 5_000_000
"""Entries that one run of the load generator adds, which must end in time."""

_LOG_CHARACTERS: Final = 300
_REASON_CHARACTERS: Final = 600

T = TypeVar("T")


class Unmeasured(Exception):
    """A row cannot be measured. The text is the reason, which the row shows."""


FAILURES: Final = (Unmeasured, LoadFailed, redis.RedisError, OSError, peers.PeerFailed)
"""What makes a row fail, and lets the next one be measured."""


def reason(error: Exception) -> str:
    """Return what a row says that could not be measured because of ``error``."""
    return " ".join(str(error).split())[:_REASON_CHARACTERS] or type(error).__name__


class StoredServer:
    """A server of ``kind`` whose data are in ``directory``, on the server's core."""

    def __init__(self, kind: Kind, directory: Path, *arguments: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        self.name = kind.name
        self.directory = directory
        self.port = peers.free_port()
        self.server_cores = {cores()[0]}
        self._arguments = arguments
        self._log = directory.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The last process that was started."""
        assert self._process is not None, "call launch() first"
        return self._process

    def command(self) -> list[str]:
        """Return the command line."""
        place = ["--port", str(self.port), "--dir", str(self.directory)]
        if self.kind.peer is None:
            words = [sys.executable, "-m", "headwater.cli.entry", "serve", *place]
        else:
            executable = peers.path(self.kind.peer)
            assert executable is not None, "available() was asked before"
            words = [str(executable), *place, "--bind", "127.0.0.1", "--save", ""]
        return [*words, *self.kind.arguments, *self._arguments]

    def launch(self) -> None:
        """Start the process without waiting for it."""
        with on_cores(self.server_cores), self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log if self.kind.peer else subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> float:
        """Start the process. Return the seconds until its first PONG. Raises `Unmeasured` if it ends."""
        began = time.perf_counter()
        self.launch()
        self._await_pong()
        return time.perf_counter() - began

    def store(self) -> Store:
        """Return the running server as a store that can be loaded."""
        return Store(self.name, "127.0.0.1", self.port, self.process.pid, cores()[1])

    def shut_down(self, *, save: bool = False) -> None:
        """Stop cleanly. A peer saves a snapshot if ``save``; Headwater always keeps its data."""
        word = b"" if self.kind.peer is None else b" SAVE" if save else b" NOSAVE"
        with socket.create_connection(("127.0.0.1", self.port), timeout=STOP_SECONDS) as link:
            link.sendall(b"SHUTDOWN" + word + b"\r\n")
            refused = link.recv(1024)
        if refused.startswith(b"-"):
            raise Unmeasured(f"{self.name}: SHUTDOWN: {refused.decode(errors='replace').strip()}")
        self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End the process with SIGKILL, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def log_end(self) -> str:
        """Return the end of what the server has printed."""
        return self._log.read_text(errors="replace").strip()[-_LOG_CHARACTERS:]

    def _await_pong(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                status = self.process.returncode
                raise Unmeasured(f"{self.name} ended with status {status}: {self.log_end()}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=60) as link:
                    link.sendall(b"PING\r\n")
                    if link.recv(64).startswith(b"+PONG"):
                        return
            except OSError:
                pass
            time.sleep(0.001)
        raise Unmeasured(f"{self.name}: no PONG within {START_SECONDS:.0f} seconds")


@contextmanager
def stored(kind: Kind, directory: Path, *arguments: str) -> Iterator[StoredServer]:
    """Yield a server that is not started yet; it is killed at the end if it still runs.

    The reason of an `Unmeasured` that begins with the server's name gets the end of its log.
    """
    server = StoredServer(kind, directory, *arguments)
    try:
        yield server
    except Unmeasured as error:
        if kind.peer is None and str(error).startswith(f"{kind.name}:"):
            raise Unmeasured(f"{error}; its log ends: {server.log_end()}") from None
        raise
    finally:
        server.kill()


@contextmanager
def running_stored(
    kind: Kind,
    directory: Path,
    *,
    fsync: str | None = "everysec",
    settings: Sequence[tuple[str, str]] = (),
    server_cores: set[int] | None = None,
) -> Iterator[tuple[StoredServer, Store]]:
    """Run a server on ``directory`` inside the block, with an append-only file unless ``fsync`` is None.

    ``settings`` are Headwater's, made by CONFIG SET. Raises `Unmeasured` if it refuses one.
    """
    with stored(kind, directory, *durability(fsync, peer=kind.peer is not None)) as server:
        if server_cores is not None:
            server.server_cores = server_cores
        server.start()
        store = server.store()
        if kind.peer is None:
            configure(store, settings)
        yield server, store


def configure(store: Store, settings: Sequence[tuple[str, str]]) -> None:
    """Make settings by CONFIG SET; a rewrite is begun by a row, not by the server. Raises `Unmeasured` for a
    setting that is refused."""
    begin_no_rewrites(store)
    with store.client() as client:
        for name, value in settings:
            try:
                client.config_set(name, value)
            except redis.ResponseError as error:
                raise Unmeasured(f"CONFIG SET {name} {value}: {error}") from None


def available() -> list[Kind]:
    """Return the stores whose programs are installed."""
    return [kind for kind in STORES if kind.available()]


def rotated(items: Sequence[T], turn: int) -> list[T]:
    """Return the items, beginning with another one each turn.

    >>> rotated("abc", 1)
    ['b', 'c', 'a']
    """
    begin = turn % len(items)
    return [*items[begin:], *items[:begin]]


def fill(store: Store, key: str, entries: int, words: Sequence[str], *, first: int = 1) -> None:
    """Add entries with the ids ``first``-1 on, in runs of the load generator that end in time."""
    last = first + entries - 1
    while first <= last:
        count = min(FILL_AT_ONCE, last - first + 1)
        store.fill(key, count, words, first=first)
        first += count
