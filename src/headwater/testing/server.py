"""Real servers for tests: one in a process of its own, one in a thread with a clock to advance.

with server_process("--appendfsync", "always") as server:
    redis.Redis.from_url(server.url).xadd("orders", {"item": "tea"})
    server.kill()                    # as a power failure would: nothing is ended cleanly
    server.start()                   # the same data, the same port

with server_thread(clock=ManualClock()) as server:
    server.advance(30)               # half a minute passes, and what was due has happened
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from headwater.clock import Clock
from headwater.config.config import Config
from headwater.errors import HeadwaterError
from headwater.journal.files import Files
from headwater.server.net.driver import Driver
from headwater.server.net.loop import make_loop
from headwater.server.running import Server
from headwater.testing.clock import ManualClock

START_SECONDS = 30.0
"""How long a server may take until it is ready; a busy machine needs most of a second."""


class ServerFailed(HeadwaterError):
    """A server did not become ready; the text has its status and what it wrote to standard error."""

    def __init__(self, status: int | None, said: str) -> None:
        super().__init__(f"the server ended with status {status}: {said.strip()}")
        self.status = status
        """The exit status of the process."""
        self.said = said
        """What it wrote to standard error."""


class ServerProcess:
    """``headwater serve`` as a child process; `server_process` makes, starts and ends one.

    ``flags`` are those of the command line; ``environment`` is added to this process's. A server that is
    started again keeps its port and its data.
    """

    def __init__(
        self, *flags: str, directory: Path, environment: dict[str, str] | None = None
    ) -> None:
        self.flags = list(flags)
        self.directory = directory
        """Its data, a log of its standard error, and its unix socket, if any."""
        self.environment = environment or {}
        self.process: subprocess.Popen[bytes] | None = None
        self.ready_line = ""
        """The line that the server printed when it was ready."""
        self.port = 0
        """The TCP port at 127.0.0.1."""
        self.tls_port = 0
        """The port for TLS; 0 without ``--tls-port``."""
        self.unixsocket: Path | None = None
        """The path of the unix socket; None without ``--unixsocket``."""
        self._log_begin = 0

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.directory / "data"

    @property
    def url(self) -> str:
        """The url, as redis-py takes it."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def unix_url(self) -> str:
        """The url of the unix socket. Needs ``--unixsocket``."""
        assert self.unixsocket is not None, "start it with --unixsocket"
        return f"unix://{self.unixsocket}"

    @property
    def tls_url(self) -> str:
        """The url for TLS. Needs ``--tls-port`` and a certificate."""
        assert self.tls_port, "start it with --tls-port"
        return f"rediss://127.0.0.1:{self.tls_port}"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self.process is not None, "start() comes first"
        return self.process.pid

    def command(self) -> list[str]:
        """Return the command line."""
        return [
            sys.executable,
            *("-m", "headwater.cli.main", "serve"),
            *("--port", str(self.port), "--dir", str(self.data)),
            *self.flags,
        ]

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for it."""
        assert self.process is None or self.process.poll() is not None, "it is running"
        with (self.directory / "log").open("ab") as log:
            self._log_begin = log.tell()
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,  # the terminal's Ctrl-C is the test's to handle
            )
        return self.process

    def start(self) -> None:
        """Start the process and wait until it is ready. Raises `ServerFailed` if it ends instead."""
        process = self.launch()
        self.ready_line = _first_line(process)
        if not self.ready_line:
            raise ServerFailed(self.wait(), self.log(begin=self._log_begin))
        where = self.ready_line.split(" ready at ", 1)[1].split(", ")[0]
        for address in where.split(" and "):
            if address.startswith("unix:"):
                self.unixsocket = Path(address.removeprefix("unix:"))
            elif address.startswith("tls:"):
                self.tls_port = int(address.rpartition(":")[2])
            else:
                self.port = int(address.rpartition(":")[2])

    def log(self, *, begin: int = 0) -> str:
        """Return what the server wrote to standard error, from byte ``begin`` on, earlier starts included."""
        return (self.directory / "log").read_bytes()[begin:].decode(errors="replace")

    def wait(self, *, within: float = START_SECONDS) -> int:
        """Wait at most ``within`` seconds for its end and return the exit status, negative for a signal."""
        assert self.process is not None, "start() comes first"
        status = self.process.wait(within)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def stop(self) -> int:
        """End it cleanly, by SIGTERM, and return the exit status."""
        return self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, by SIGKILL."""
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> int:
        """Send a signal that ends it, wait for its end and return the exit status."""
        assert self.process is not None, "start() comes first"
        if self.process.poll() is None:
            if number != signal.SIGKILL:
                self.resume()  # a process that is stopped hears nothing else
            self.process.send_signal(number)
        return self.wait()

    def pause(self) -> None:
        """Stop it by SIGSTOP; it keeps its connections."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `ServerProcess.pause`, by SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)


@contextmanager
def server_process(
    *flags: str, directory: Path | None = None, environment: dict[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Run ``headwater serve`` in a process of its own, on a free port of 127.0.0.1, while the block runs.

        with server_process("--appendfsync", "always") as server:
            client = redis.Redis.from_url(server.url)
            client.xadd("orders", {"item": "tea"})
            server.kill()
            server.start()
            assert client.xlen("orders") == 1

    The value is a `ServerProcess` that accepts connections. ``flags`` are those of ``headwater serve``;
    ``environment`` is added to this process's. Without a ``directory`` the data are in a temporary one, which
    is removed at the end. Raises `ServerFailed` if the server does not start.
    """
    # Short, because a unix socket's path holds at most 107 bytes.
    own = Path(tempfile.mkdtemp(prefix="hw-")) if directory is None else directory
    server = ServerProcess(*flags, directory=own, environment=environment)
    try:
        server.start()
        yield server
    finally:
        if server.process is not None:
            server.kill() if sys.exc_info()[0] else server.stop()
        if directory is None:
            shutil.rmtree(own, ignore_errors=True)


def _first_line(process: subprocess.Popen[bytes]) -> str:
    """The line that a starting server prints; empty when it ends or says nothing in time."""
    assert process.stdout is not None
    descriptor, line = process.stdout.fileno(), b""
    deadline = time.monotonic() + START_SECONDS
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        received = os.read(descriptor, 4096) if ready else b""
        if not received:
            if process.poll() is None and not ready:
                process.kill()
            return ""
        line += received
    return line.decode().strip()


class ServerThread:
    """A server in a thread of this process, so that a test can advance its clock; `server_thread` makes one."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        make: Callable[..., Driver] = make_loop,
    ) -> None:
        self.config = config
        self.clock = clock
        self._files = files
        self._make = make
        self.status: int | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, Server]] = Future()
        self._thread = threading.Thread(target=self._main, name="headwater-server", daemon=True)

    @property
    def server(self) -> Server:
        """The server within the thread."""
        return self._started.result()[1]

    @property
    def port(self) -> int:
        """The TCP port at 127.0.0.1."""
        return self.config.port

    @property
    def url(self) -> str:
        """The url, as redis-py takes it."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        """The url for TLS. Needs the ``tls_…`` settings."""
        assert self.config.tls_port, "give it a tls_port"
        return f"rediss://127.0.0.1:{self.config.tls_port}"

    def start(self) -> None:
        """Start it and wait until it listens. Raises `ListenError` and what opening its store raises."""
        self._thread.start()
        self._started.result(START_SECONDS)

    def stop(self) -> int:
        """End it cleanly and return the exit status that a process would have."""
        loop, server = self._started.result()
        if self._thread.is_alive():
            try:
                loop.call_soon_threadsafe(server.request_stop)
            except RuntimeError:
                pass  # It has just ended by itself.
        self._thread.join(START_SECONDS)
        assert self.status is not None, "the server's thread does not end"
        return self.status

    def run(self, function: Callable[[Server], object]) -> None:
        """Call ``function`` in the server's thread, between turns, and wait for its end."""
        loop, server = self._started.result()

        async def call() -> None:
            function(server)

        asyncio.run_coroutine_threadsafe(call(), loop).result(START_SECONDS)

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass on its `ManualClock`. What was due has been done and sent when this returns."""
        clock = self.clock
        assert isinstance(clock, ManualClock), "give server_thread a ManualClock to advance"

        def pass_time(server: Server) -> None:
            clock.advance(seconds)
            server.loop.tick()

        self.run(pass_time)

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        try:
            server = Server(self.config, clock=self.clock, files=self._files, make=self._make)
            server.start()
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result((asyncio.get_running_loop(), server))
        await server.stopped()
        self.status = server.stop()


@contextmanager
def server_thread(
    config: Config | None = None,
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    make: Callable[..., Driver] = make_loop,
) -> Iterator[ServerThread]:
    """Run a server in a thread of this process, on a free port of 127.0.0.1, while the block runs.

    >>> import redis
    >>> with server_thread(clock=ManualClock()) as server, redis.Redis.from_url(server.url) as client:
    ...     _ = client.set("session", "17", ex=30)
    ...     server.advance(31)
    ...     print(client.exists("session"))
    0

    The value is a `ServerThread`. The server keeps no journal unless ``config`` says otherwise. ``clock`` is a
    `ManualClock` or the machine's, the default. ``files`` is the disk of the journal, such as
    ``headwater.testing.files.CrashableFiles``; ``make`` makes the event loop.
    """
    config = config if config is not None else Config(port=0, appendonly=files is not None)
    server = ServerThread(config, clock=clock, files=files, make=make)
    server.start()
    try:
        yield server
    finally:
        server.stop()
