"""Runs a server from start to exit status: configuration, data, sockets, signals."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.common.clock import Clock
from headwater.config.config import Config
from headwater.journal.disk.files import Files
from headwater.journal.disk.reads import OPEN_FILES
from headwater.server.identity import version
from headwater.server.log import reopen_log
from headwater.server.net.driver import Driver
from headwater.server.net.listener import Listener, bind_all, listener_info
from headwater.server.net.loop import make_loop
from headwater.server.opening import Opening
from headwater.server.replacement import remove_unfinished
from headwater.server.services.garbage_collection import GarbageCollection
from headwater.server.services.observability.info import running
from headwater.server.services.storage.cold_reads import THREADS
from headwater.server.signals import Signals, StopRequested
from headwater.server.supervision import ServiceNotifier
from headwater.server.turn.node import Node
from headwater.uncompiled import notice

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("headwater.server")

RESERVED_DESCRIPTORS = 64 + OPEN_FILES + THREADS
"""Number of file descriptors that clients cannot use: 64 for the journal, the listeners, the log, the helper of a
checkpoint and Python itself, `OPEN_FILES` for files that stay open, and one for each thread that reads a file."""


class Server:
    """A node that serves clients over sockets, in a running asyncio loop.

        server = Server(config)
        server.start()
        if await server.load():     # clients get LOADING until then
            await server.stopped()  # SHUTDOWN, `request_stop`, or a failure of the node
        status = server.stop()

    ``start`` raises `ConfigError` (TLS, users), `ListenError`, `StoreInUse`, `StoreUnusable` or
    `JournalDamaged`, and ``load`` the last two. After an error, nothing is left open and the data on
    disk is unchanged.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        make: Callable[..., Driver] = make_loop,
    ) -> None:
        self.config = config
        self._clock = clock
        self._files = files
        self._make = make
        self._listeners: list[Listener] = []
        self._end = asyncio.Event()
        self._opening: Opening | None = None
        self._loop: Driver | None = None
        self._status: int | None = None

    @property
    def node(self) -> Node:
        """The store. Available after `start`; its content after `load`."""
        assert self._opening is not None, "call start() first"
        return self._opening.node

    @property
    def loop(self) -> Driver:
        """The loop of the sockets. Available after `start`."""
        assert self._loop is not None, "call start() first"
        return self._loop

    @property
    def addresses(self) -> list[str]:
        """The addresses of the listeners: ``127.0.0.1:6379``, ``tls:127.0.0.1:6390``,
        ``unix:/run/hw.sock``."""
        return [listener.name for listener in self._listeners]

    def start(self) -> None:
        """Bind the listeners, open the data directory, then listen."""
        tls = _tls_context(self.config)
        self._listeners = bind_all(self.config)
        try:
            self._opening = Opening(self.config, clock=self._clock, files=self._files)
            self._loop = self._make(self.node, on_stop=self._end.set)
            self.node.services.traffic.listeners = listener_info(self._listeners)
            self.node.services.clients.tls = tls
            self.node.services.rebind = self._rebind
            for listener in self._listeners:
                listener.listen(self._loop, backlog=self.config.tcp_backlog)
        except BaseException:
            self.stop()
            raise

    def _rebind(self, config: Config) -> None:
        """Listen only at the addresses of ``config``; clients stay connected. Raises `ListenError`, in which
        case nothing has changed."""
        before, after = self._listeners, bind_all(config, self._listeners)
        added = [one for one in after if one not in before]
        try:
            for listener in added:
                listener.listen(self.loop, backlog=config.tcp_backlog)
        except BaseException:
            for listener in added:
                listener.close()
            raise
        for listener in before:
            if listener not in after:
                listener.close()
        self._listeners = after
        self.node.services.traffic.listeners = listener_info(after)
        log.info("listening at %s", " and ".join(self.addresses))

    async def load(self) -> bool:
        """Replay the journal in steps, and serve clients between them. Return True when the server is ready, False
        if it is to stop."""
        assert self._opening is not None, "call start() first"
        try:
            for _ in self._opening.steps():
                await asyncio.sleep(0)
                if self._end.is_set():
                    return False
            self.loop.tick()
        except BaseException:
            self.stop()
            raise
        return not self._end.is_set()

    def request_stop(self) -> None:
        """Make `stopped` return."""
        self._end.set()

    @property
    def is_stopping(self) -> bool:
        """True if a stop was requested or the node failed."""
        return self._end.is_set()

    async def stopped(self) -> None:
        """Wait until a stop is requested or the node fails."""
        await self._end.wait()

    def stop(self) -> int:
        """Accept no more connections, make everything durable, close every connection. Returns the exit
        status: 0, or 1 if the node failed. A second call does nothing and returns the same."""
        if self._status is None:
            self._status = self._stop()
        return self._status

    def _stop(self) -> int:
        for listener in self._listeners:
            listener.close()
        failure = self._close_node()
        if self._loop is not None:
            self._loop.stop()
            failure = failure or self._loop.failure
        if self._opening is not None:
            failure = failure or self.node.state.poisoned
        return 0 if failure is None else 1

    def _close_node(self) -> BaseException | None:
        """Write the node's last changes, unless its state may be wrong. Close the journal. Return any failure."""
        if self._opening is None:
            return None
        failure: BaseException | None = None
        try:
            if self._loop is None or self._loop.failure is None:
                self.node.close()
            if self.node.journal is not None:
                self.node.journal.close()
            self._opening.abandon()
        except Exception as error:
            failure = error
            log.critical("the journal could not be closed cleanly: %s", error)
        return failure

    def ready_line(self) -> str:
        """Return the line that announces that the server accepts clients."""
        kept = 'no journal (appendonly no, save ""), nothing is stored'
        if self.config.keeps_data:
            directory = Path(self.config.dir).absolute()
            kept = f"journal {directory} appendfsync {self.config.journal_policy}"
            if not self.config.appendonly:
                kept += " (appendonly no with save points)"
        where = " and ".join(self.addresses)
        return f"headwater {version().decode()} ready at {where}, {kept}, {running()}"


def _tls_context(config: Config) -> ssl.SSLContext | None:
    """Return the TLS context for new connections. If TLS is not configured, return None without importing
    ssl.

    Raises `ConfigError`.
    """
    if not config.tls_port:
        return None
    from headwater.server.services.tls import make_context

    return make_context(config.located())


Attend = Callable[[Server], AbstractContextManager[object]]
"""Function that returns a context manager, entered when the server listens, before it loads data, exited at the end."""


def run(config: Config, *, on_ready: Callable[[str], None], attend: Attend = nullcontext) -> int:
    """Serve until SIGTERM, SIGINT, SHUTDOWN or a failure. Return the exit status. Calls ``on_ready`` with the
    ready line. Raises the same errors as `Server.start` and ``attend``."""
    return asyncio.run(_run(config, on_ready, attend))


async def _run(config: Config, on_ready: Callable[[str], None], attend: Attend) -> int:
    raise_file_limit(config)
    for path in (config.file, config.located().aclfile):
        if path:
            remove_unfinished(Path(path))
    collection = GarbageCollection()
    collection.begin()
    try:
        with ExitStack() as attending:
            server = Server(config)
            return await _serve(
                server, on_ready, collection, lambda: attending.enter_context(attend(server))
            )
    finally:
        collection.end()


async def _serve(
    server: Server,
    on_ready: Callable[[str], None],
    collection: GarbageCollection,
    attend: Callable[[], object],
) -> int:
    supervisor = ServiceNotifier.of(server.config, os.environ)
    signals = Signals(reopen=partial(_reload, supervisor))
    loop = asyncio.get_running_loop()
    try:
        signals.install()
        with supervisor.starting():
            server.start()
            _attend(server, attend)
            signals.serve(loop, stop=partial(_stop_for, server))
            is_ready = await server.load()
    except StopRequested as stop:
        signals.ignore()
        log.info("%s: the server stops before it is ready", stop)
        supervisor.close()
        return server.stop()
    if not is_ready:
        supervisor.close()
        status = server.stop()
        signals.finish(loop)
        return status
    collection.serve(server.node.services)
    server.node.services.traffic.supervised = supervisor.name
    ready = server.ready_line()
    log.info("started as process %d: %s", os.getpid(), ready)
    if uncompiled := notice():
        log.warning(uncompiled)
    try:
        on_ready(ready)
        supervisor.ready(ready)
        supervisor.watch(loop)
        await server.stopped()
        supervisor.stopping("stopping")
    finally:
        status = server.stop()
    log.info("stopped with exit status %d", status)
    signals.finish(loop)
    supervisor.close()
    return status


def _attend(server: Server, attend: Callable[[], object]) -> None:
    try:
        attend()
    except BaseException:
        server.stop()
        raise


def _reload(supervisor: ServiceNotifier, cause: str) -> None:
    """Handle SIGHUP and SIGUSR1."""
    with supervisor.reloading():
        reopen_log(cause)


def _stop_for(server: Server, cause: str) -> None:
    """Handle SIGTERM and SIGINT."""
    if not server.is_stopping:
        early = " before it is ready" if server.node.state.loading is not None else ""
        log.info("%s: the server stops%s", cause, early)
    server.request_stop()


def raise_file_limit(config: Config) -> None:
    """Raise the limit of open files so that there is a descriptor for each of ``maxclients``. If
    the system allows fewer, lower ``maxclients`` and log it. Precedent: Redis,
    adjustOpenFilesLimit."""
    wanted = config.maxclients + RESERVED_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):
        allowed = soft
    if allowed < wanted:
        config.maxclients = max(1, allowed - RESERVED_DESCRIPTORS)
        log.warning(
            "maxclients lowered to %d: the system allows this process %d open files; raise ulimit -n",
            config.maxclients,
            allowed,
        )
