"""Servers for tests: one in its own process, one in a thread with a clock that the test advances.

with server_process("--appendfsync", "always") as server:
    redis.Redis.from_url(server.url).xadd("orders", {"item": "tea"})
    server.kill()                    # SIGKILL: no clean stop
    server.start()                   # with the same data on the same port

with server_thread(clock=ManualClock()) as server:
    server.advance(30)               # half a minute passes, and everything due has run
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

from headwater.common.clock import Clock
from headwater.config.config import Config
from headwater.errors import HeadwaterError
from headwater.journal.disk.files import Files
from headwater.server.net.driver import Driver
from headwater.server.net.loop import make_loop
from headwater.server.running import Server
from headwater.testing.clock import ManualClock

START_SECONDS = 30.0
"""Maximum time until a server is ready, in seconds. A busy machine needs most of a second."""


class ServerFailed(HeadwaterError):
    """A server did not become ready. The message contains the exit status and the standard error."""

    def __init__(self, status: int | None, said: str) -> None:
        super().__init__(f"the server ended with status {status}: {said.strip()}")
        self.status = status
        """The exit status of the process."""
        self.said = said
        """The standard error of the process."""


class ServerProcess:
    """``headwater serve`` as a child process. `server_process` creates, starts and stops one.

    ``flags`` are arguments of ``headwater serve``. The variables in ``environment`` are added to those of this
    process. A restarted server has the same port and the same data.
    """

    def __init__(
        self, *flags: str, directory: Path, environment: dict[str, str] | None = None
    ) -> None:
        self.flags = list(flags)
        self.directory = directory
        """The directory that contains the data directory and ``log``, the server's standard error."""
        self.environment = environment or {}
        self.process: subprocess.Popen[bytes] | None = None
        self.ready_line = ""
        """The line that the server prints when it is ready."""
        self.port = 0
        """The TCP port on 127.0.0.1."""
        self.tls_port = 0
        """The TLS port; 0 without ``--tls-port``."""
        self.unixsocket: Path | None = None
        """The path of the unix socket; None without ``--unixsocket``."""
        self._log_begin = 0

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.directory / "data"

    @property
    def url(self) -> str:
        """The URL for redis-py."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def unix_url(self) -> str:
        """The URL of the unix socket. The server must have been started with ``--unixsocket``."""
        assert self.unixsocket is not None, "start it with --unixsocket"
        return f"unix://{self.unixsocket}"

    @property
    def tls_url(self) -> str:
        """The URL for TLS. The server must have been started with ``--tls-port`` and a certificate."""
        assert self.tls_port, "start it with --tls-port"
        return f"rediss://127.0.0.1:{self.tls_port}"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self.process is not None, "call start() first"
        return self.process.pid

    def command(self) -> list[str]:
        """Return the command line."""
        return [
            sys.executable,
            *("-m", "headwater", "serve"),
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
                start_new_session=True,  # Ctrl-C in the terminal must not reach the server
            )
        return self.process

    def start(self) -> None:
        """Start the process and wait until it is ready. Raises `ServerFailed` if it does not become ready."""
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
        """Return the standard error of all starts, from byte ``begin`` to the end."""
        return (self.directory / "log").read_bytes()[begin:].decode(errors="replace")

    def wait(self, *, within: float = START_SECONDS) -> int:
        """Wait until the process has ended, and return its exit status: -N if signal N ended it. Raises
        `subprocess.TimeoutExpired` after ``within`` seconds."""
        assert self.process is not None, "call start() first"
        status = self.process.wait(within)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def stop(self) -> int:
        """Stop the server cleanly with SIGTERM. Return the exit status."""
        return self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> int:
        """Send a signal that ends the process, wait for the end and return the exit status."""
        assert self.process is not None, "call start() first"
        if self.process.poll() is None:
            if number != signal.SIGKILL:
                self.resume()  # a suspended process does not handle other signals
            self.process.send_signal(number)
        return self.wait()

    def pause(self) -> None:
        """Suspend the process with SIGSTOP. Its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the process after `ServerProcess.pause`, with SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)


@contextmanager
def server_process(
    *flags: str, directory: Path | None = None, environment: dict[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Run ``headwater serve`` in a separate process, on a free port of 127.0.0.1, while the block runs.

        with server_process("--appendfsync", "always") as server:
            client = redis.Redis.from_url(server.url)
            client.xadd("orders", {"item": "tea"})
            server.kill()
            server.start()
            assert client.xlen("orders") == 1

    The value is a `ServerProcess` that accepts connections. ``flags`` are arguments of ``headwater serve``.
    The variables in ``environment`` are added to those of this process. If ``directory`` is None, a temporary
    directory is used and removed at the end. Raises `ServerFailed` if the server does not start.
    """
    # A short prefix, because the path of a unix socket has at most 107 bytes.
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
    """Return the line that a server prints when it is ready; empty if the server ends or takes too long."""
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
    """A server in a thread of this process, so that a test can advance the server's clock. `server_thread`
    creates one."""

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
        """The server object in the thread."""
        return self._started.result()[1]

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1."""
        return self.config.port

    @property
    def url(self) -> str:
        """The URL for redis-py."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        """The URL for TLS. The server's config must have ``tls_…`` settings."""
        assert self.config.tls_port, "give it a tls_port"
        return f"rediss://127.0.0.1:{self.config.tls_port}"

    def start(self) -> None:
        """Start the server and wait until it listens. Raises `ListenError` if it cannot listen, and the errors
        of opening a store."""
        self._thread.start()
        self._started.result(START_SECONDS)

    def stop(self) -> int:
        """Stop the server cleanly. Return the exit status that a process would have."""
        loop, server = self._started.result()
        if self._thread.is_alive():
            try:
                loop.call_soon_threadsafe(server.request_stop)
            except RuntimeError:
                pass  # It has just stopped.
        self._thread.join(START_SECONDS)
        assert self.status is not None, "the server's thread has not ended"
        return self.status

    def run(self, function: Callable[[Server], object]) -> None:
        """Call ``function`` in the server's thread, between turns, and wait until it returns."""
        loop, server = self._started.result()

        async def call() -> None:
            function(server)

        asyncio.run_coroutine_threadsafe(call(), loop).result(START_SECONDS)

    def advance(self, seconds: float) -> None:
        """Advance the server's `ManualClock` by ``seconds``. When this method returns, everything due has run
        and the replies are sent."""
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
            assert await server.load(), "something stopped the server before it was ready"
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

    The value is a `ServerThread`. Without ``config`` and ``files`` the server has no journal. ``clock`` is a
    `ManualClock` or, by default, the system's clock. ``files`` replaces the journal's disk, for example with
    ``headwater.testing.files.CrashableFiles``. ``make`` creates the event loop.
    """
    config = config if config is not None else Config(port=0, appendonly=files is not None, save=())
    server = ServerThread(config, clock=clock, files=files, make=make)
    server.start()
    try:
        yield server
    finally:
        server.stop()
