"""Real servers to compare with: Redis 7.0.15, Redis 8.2.3, Valkey 9.1.2, installed by `make peers`.

    with running("redis-8.2") as server:          # or the fixtures `peer` and `shared_peer`
        redis.Redis.from_url(server.url).ping()

A server listens on a free port of 127.0.0.1 (and optionally on a unix socket), stores nothing on disk
unless its arguments say so, and is ended by its pid. If a binary is missing, `running` raises
`PeerMissing`. The fixtures turn that into a skip that names the binary, or into a failure if
``CI_PEERS_REQUIRED=1``, which ``.ci/run`` sets.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import tools.peers
from tests.conformance.wire import connected

PEERS: Final = ("redis-7.0", "redis-8.2", "valkey-9.1")

DIRECTORY: Final = Path(__file__).resolve().parent.parent / ".peers" / "bin"

START_SECONDS: Final = 20.0
"""How long a server may take to answer. On a busy machine it takes most of a second."""

_ATTEMPTS: Final = 5
"""Attempts to start: another process may bind the port before the server does."""


class PeerMissing(Exception):
    """The peer's binary is missing. The text is the reason of a skipped test."""

    def __init__(self, name: str) -> None:
        super().__init__(f"peer did not run: {name} (make peers)")


class PeerFailed(Exception):
    """The peer was started and did not answer. The text includes its output."""


def required() -> bool:
    """Whether a missing peer is a failure rather than a skip."""
    return os.environ.get("CI_PEERS_REQUIRED", "") == "1"


def path(name: str) -> Path | None:
    """Return the executable of one of `PEERS`, or None if `make peers` has not installed it."""
    assert name in PEERS, f"{name!r} is not one of {PEERS}"
    return _executable(name)


def redis_cli() -> Path | None:
    """The executable of redis-cli 7.0.15, or None."""
    return _executable("redis-cli")


def redis_benchmark() -> Path | None:
    """The executable of redis-benchmark 7.0.15, or None."""
    return _executable("redis-benchmark")


def tool(name: str) -> Path:
    """The executable of ``promtool`` or ``redis-exporter``. Raises `PeerMissing`."""
    found = _executable(name)
    if found is None:
        raise PeerMissing(name)
    return found


@cache
def node() -> str | None:
    """Return the path of a Node.js that is new enough, or None. Without it `make peers` installs no
    client for Node.js."""
    found = tools.peers.find_tool("node")
    new_enough = found and tools.peers.node_version(found) >= tools.peers.OLDEST_NODE
    return found if new_enough else None


def node_packages() -> Path | None:
    """Return the ``node_modules`` directory that `make peers` has filled, or None."""
    found = DIRECTORY.parent / "node" / "node_modules"
    return found if found.is_dir() else None


def _executable(name: str) -> Path | None:
    found = DIRECTORY / name
    return found if os.access(found, os.X_OK) else None


@dataclass
class Peer:
    """One running server. redis-py accepts ``url`` and ``unix_url``."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    directory: Path
    host: str = "127.0.0.1"
    unixsocket: Path | None = None
    arguments: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}"

    @property
    def unix_url(self) -> str:
        assert self.unixsocket, "start it with unixsocket=True"
        return f"unix://{self.unixsocket}"

    def log(self) -> str:
        """The server's output so far."""
        return (self.directory / "log").read_text(errors="replace")

    def stop(self, *, within: float = 10.0) -> None:
        """End the server by SIGTERM, and by SIGKILL if it has not ended ``within`` seconds."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)  # a stopped process does not handle SIGTERM
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(within)
        self.kill()

    def kill(self) -> None:
        """End the server by SIGKILL and wait for its end."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@contextmanager
def running(name: str, *arguments: str, unixsocket: bool = False) -> Iterator[Peer]:
    """Start a separate server, which ends with the block.

    ``arguments`` are redis-server's. They come after ``--save "" --appendonly no`` and override it.
    Raises `PeerMissing` if the binary is missing, `PeerFailed` if the server does not answer.
    """
    # Short and under the temporary directory: a unix socket's path holds at most 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="hw-peer-"))
    try:
        server = start(name, *arguments, directory=directory, unixsocket=unixsocket)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def start(
    name: str, *arguments: str, directory: Path, unixsocket: bool = False, port: int = 0
) -> Peer:
    """Start a server in ``directory``, on a free port if none is given, and wait until it answers.
    The caller ends it."""
    executable = path(name)
    if executable is None:
        raise PeerMissing(name)
    printed = ""
    for _attempt in range(_ATTEMPTS):
        server = _launch(
            name, executable, list(arguments), directory, unixsocket=unixsocket, port=port
        )
        if _answers(server):
            return server
        server.kill()
        printed = server.log()
        if "Address already in use" not in printed:
            break
    raise PeerFailed(
        f"{name} did not answer within {START_SECONDS} seconds. It printed:\n{printed}"
    )


def _launch(
    name: str,
    executable: Path,
    arguments: list[str],
    directory: Path,
    *,
    unixsocket: bool,
    port: int,
) -> Peer:
    port = port or free_port()
    command = [str(executable), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
    command += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
    socket_path = directory / "socket" if unixsocket else None
    if socket_path:
        command += ["--unixsocket", str(socket_path), "--unixsocketperm", "700"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            # `make asan` preloads a library into our own processes; peers must not load it.
            env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
            start_new_session=True,  # the terminal's Ctrl-C is pytest's to handle
        )
    return Peer(
        name, process, port, directory, unixsocket=socket_path, arguments=[*command, *arguments]
    )


def free_port() -> int:
    """Return a port of 127.0.0.1 that no process listens on at this moment. It is below the ports that the
    system assigns to connections, of which a busy machine has many, so that it is probably still free when
    it is used. It is drawn from the system's random source, because concurrent tests seed `random` alike."""
    rng = random.SystemRandom()
    while True:
        port = rng.randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _answers(server: Peer) -> bool:
    """Whether the server, and not another one on its port, answers within `START_SECONDS`."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        with suppress(OSError):
            if _process_id(server) == server.pid:
                return True
        time.sleep(0.01)  # there is nothing to wait on: only an answer shows that a server is up
    return False


def empty(port: int) -> None:
    """Empty every database of a server, and forget its scripts and what other tests left in it: their users would have
    their rights, and denials are a cause that `explain` names."""
    with connected(port) as wire:
        names = wire.ask("ACL", "USERS").split(b"\r\n")[2::2]
        if others := [name for name in names if name not in (b"default", b"")]:
            wire.ask("ACL", "DELUSER", *others)
        for words in (("FLUSHALL",), ("SCRIPT", "FLUSH"), ("ACL", "LOG", "RESET")):
            reply = wire.ask(*words)
            assert reply == b"+OK\r\n", f"the server at port {port} cannot be emptied: {reply!r}"


def _process_id(server: Peer) -> int | None:
    """Return the pid in the reply to INFO server, or None while the server does not serve yet."""
    with socket.create_connection((server.host, server.port), timeout=1) as connection:
        connection.sendall(b"PING\r\nINFO server\r\n")
        reply = b""
        while b"uptime_in_seconds" not in reply:
            received = connection.recv(65536)
            if not received:
                return None
            reply += received
            if reply.startswith(b"-"):  # LOADING
                return None
    _before, _name, after = reply.partition(b"process_id:")
    return int(after.split(b"\r\n")[0])
