"""A server from its start to its end: configuration, data, sockets, signals, exit status."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.clock import Clock
from headwater.config.config import Config
from headwater.journal.files import Files
from headwater.server.identity import version
from headwater.server.log import reopen_log
from headwater.server.net.driver import Driver
from headwater.server.net.listener import Listener, bind_all, listener_info
from headwater.server.net.loop import make_loop
from headwater.server.opening import open_node
from headwater.server.replacement import remove_unfinished
from headwater.server.services.garbage_collection import GarbageCollection
from headwater.server.services.observability.info import running
from headwater.server.signals import Signals, StopRequested
from headwater.server.supervision import ServiceNotifier
from headwater.server.turn.node import Node
from headwater.uncompiled import notice

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("headwater.server")

RESERVED_DESCRIPTORS = 64
"""For the journal, the listeners, the log and Python itself."""


class Server:
    """A node behind sockets, within a running loop of asyncio.

        server = Server(config)
        server.start()
        await server.stopped()      # SHUTDOWN, `request_stop`, or the node cannot go on
        status = server.stop()

    ``start`` raises `ConfigError` (of TLS), `ListenError`, `StoreInUse`, `StoreUnusable` or `JournalDamaged`, with nothing
    left open and nothing changed on disk.
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
        self._node: Node | None = None
        self._loop: Driver | None = None
        self._status: int | None = None

    @property
    def node(self) -> Node:
        """The store; there is one from `start` on."""
        assert self._node is not None, "start() comes first"
        return self._node

    @property
    def loop(self) -> Driver:
        """Its sockets' loop; there is one from `start` on."""
        assert self._loop is not None, "start() comes first"
        return self._loop

    @property
    def addresses(self) -> list[str]:
        """Where it listens: ``127.0.0.1:6379``, ``tls:127.0.0.1:6390``, ``unix:/run/hw.sock``."""
        return [listener.name for listener in self._listeners]

    def start(self) -> None:
        """Bind, read the data, listen."""
        tls = _tls_context(self.config)
        self._listeners = bind_all(self.config)
        try:
            self._node = open_node(self.config, clock=self._clock, files=self._files)
            self._loop = self._make(self._node, on_stop=self._end.set)
            self._node.services.traffic.listeners = listener_info(self._listeners)
            self._node.services.tls = tls
            for listener in self._listeners:
                listener.listen(self._loop, backlog=self.config.tcp_backlog)
        except BaseException:
            self.stop()
            raise

    def request_stop(self) -> None:
        """Let `stopped` return."""
        self._end.set()

    async def stopped(self) -> None:
        """Wait until the server is to end."""
        await self._end.wait()

    def stop(self) -> int:
        """Accept no more, make everything durable, end every connection. The exit status: 0, or 1
        when the node could not go on. Stopping twice does nothing more."""
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
        if self._node is not None:
            failure = failure or self._node.state.poisoned
        return 0 if failure is None else 1

    def _close_node(self) -> BaseException | None:
        """End the journal, with what the node still has to write unless its state may be wrong."""
        if self._node is None:
            return None
        failure: BaseException | None = None
        try:
            if self._loop is None or self._loop.failure is None:
                self._node.close()
            if self._node.journal is not None:
                self._node.journal.close()
        except Exception as error:
            failure = error
            log.critical("the journal could not be ended cleanly: %s", error)
        return failure

    def ready_line(self) -> str:
        """What is told once when clients are answered."""
        kept = "no journal (appendonly no), nothing is kept"
        if self.config.appendonly:
            directory = Path(self.config.dir).absolute()
            kept = f"journal {directory} appendfsync {self.config.appendfsync}"
        where = " and ".join(self.addresses)
        return f"headwater {version().decode()} ready at {where}, {kept}, {running()}"


def _tls_context(config: Config) -> ssl.SSLContext | None:
    """The certificate and the rules of TLS; None where TLS is not asked for, and not imported.

    Raises `ConfigError`.
    """
    if not config.tls_port:
        return None
    from headwater.server.services.tls import make_context

    return make_context(config)


def run(config: Config, *, on_ready: Callable[[str], None]) -> int:
    """Serve until SIGTERM, SIGINT or SHUTDOWN; ``on_ready`` is given the ready line. Returns the
    exit status. Raises what `Server.start` raises."""
    return asyncio.run(_run(config, on_ready))


async def _run(config: Config, on_ready: Callable[[str], None]) -> int:
    raise_file_limit(config)
    for path in (config.file, config.aclfile):
        if path:
            remove_unfinished(Path(path))
    collection = GarbageCollection()
    collection.begin()
    try:
        return await _serve(config, on_ready, collection)
    finally:
        collection.end()


async def _serve(
    config: Config, on_ready: Callable[[str], None], collection: GarbageCollection
) -> int:
    supervisor = ServiceNotifier.of(config, os.environ)
    server = Server(config)
    signals = Signals(reopen=partial(_reload, supervisor))
    loop = asyncio.get_running_loop()
    try:
        signals.install()
        with supervisor.starting():
            server.start()
        collection.serve(server.node.services)
        signals.serve(loop, stop=partial(_stop_for, server))
    except StopRequested as stop:
        signals.ignore()
        log.info("%s: the server stops before it was ready", stop.name)
        supervisor.close()
        return server.stop()
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


def _reload(supervisor: ServiceNotifier, cause: str) -> None:
    """SIGHUP and SIGUSR1."""
    with supervisor.reloading():
        reopen_log(cause)


def _stop_for(server: Server, cause: str) -> None:
    """SIGTERM and SIGINT."""
    log.info("%s: the server stops", cause)
    server.request_stop()


def raise_file_limit(config: Config) -> None:
    """Let the process have a descriptor for each of ``maxclients``; where it may not have so many,
    fewer clients are let in, and the log says so. Precedent: Redis, adjustOpenFilesLimit."""
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
            "maxclients is %d: the system allows this process %d open files (ulimit -n)",
            config.maxclients,
            allowed,
        )
