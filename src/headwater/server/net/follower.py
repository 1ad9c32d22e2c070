"""The connection of a replica to its primary.

    connect ── AUTH, REPLCONF ── HWSYNC ──▶ +CONTINUE: groups ──▶ node.follow, one turn for all that has arrived
                                            +FULL: a copy, file by file ──▶ replaces the store, then groups

Rule 1. The link is a task of the asyncio loop. It ends with the first error and begins again after a pause, until the node
        is a primary or has another one.
Rule 2. Only the disk is used from another thread: for the files of a copy.
Rule 3. While the disk is full, nothing is read from the primary, and what has arrived waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from headwater.common.addresses import address_text
from headwater.common.log_limit import LimitedLog
from headwater.errors import HeadwaterError
from headwater.journal.disk.files import DiskFiles
from headwater.journal.log.adopting import CopyRefused, CopyWriter
from headwater.persistence.progress import LoadProgress
from headwater.server.net.driver import Driver
from headwater.server.opening import reopen_steps
from headwater.server.services.replication.link import (
    LINK_VERSION,
    Continuation,
    CopyEnds,
    FileBegins,
    FilePart,
    Groups,
    LinkReader,
    LinkRefused,
    SignOfLife,
)
from headwater.server.services.replication.replication import PrimaryLink
from headwater.server.session.session import Session

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("headwater.server")

READ_BYTES = 1024 * 1024
"""Maximum number of bytes that are read at once, and applied in one turn."""
PAUSE_S = 1.0
"""Time between two attempts to connect, in seconds."""
_ROOM_S = 0.5
"""Interval at which a replica whose disk is full looks whether it has room, in seconds."""
ACK_S = 1.0
"""Interval of acknowledgements, in seconds, unless the primary wants one after each turn."""
_CLOCK_MS = 1000
"""Difference from the primary's steady time, in ms, above which the replica's is set back."""


def encode(*words: str | int) -> bytes:
    """Return a request."""
    texts = [str(word).encode("utf-8", "surrogateescape") for word in words]
    return b"".join(
        [b"*%d\r\n" % len(texts), *(b"$%d\r\n%s\r\n" % (len(one), one) for one in texts)]
    )


class LinkLost(Exception):
    """The primary cannot be reached, or has closed the connection."""


class Follower:
    """Follows the primary of a node, as long as it has one. Created in the asyncio loop of ``driver``."""

    def __init__(self, driver: Driver, *, port: Callable[[], int]) -> None:
        self._driver = driver
        self._port = port
        self._node = driver.node
        self._replication = driver.node.services.replication
        self._changed = asyncio.Event()
        self._replication.on_change = self._changed.set
        self._task = asyncio.get_running_loop().create_task(self._run())
        monotonic = driver.node.clock.monotonic
        self._log = LimitedLog(log, monotonic=monotonic)

    def stop(self) -> None:
        """End the link."""
        self._replication.on_change = None
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            primary = self._replication.source
            if primary is None or self._node.state.loading is not None:
                await self._changed.wait()
                continue
            following = asyncio.ensure_future(self._follow_once(primary))
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait({following, changed}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if not following.done():
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
            if self._replication.source is primary:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), PAUSE_S)

    async def _follow_once(self, primary: PrimaryLink) -> None:
        """Follow until the link ends, and log why."""
        where = f"{primary.host} port {primary.port}"
        primary.state = "connecting"
        primary.attempts += 1
        try:
            await _Link(self._driver, primary, self._port()).run()
        except (OSError, LinkLost, TimeoutError, asyncio.IncompleteReadError) as error:
            self._log.warning(
                "the link to the primary at %s is down: %s", where, str(error) or repr(error)
            )
        except (LinkRefused, CopyRefused) as error:
            self._log.warning("the primary at %s cannot be followed: %s", where, error)
        except HeadwaterError as error:
            log.critical("the link to the primary at %s: %s", where, error)
        except Exception:
            log.exception("the link to the primary at %s ended", where)
        finally:
            if self._replication.failover is not None:
                with self._node.lock:
                    self._replication.end_failover("the replica did not take over")
            primary.down(self._node.clock.monotonic())


class _Link:
    """One connection to a primary."""

    def __init__(self, driver: Driver, primary: PrimaryLink, port: int) -> None:
        self._driver = driver
        self._port = port
        self._node = driver.node
        self._services = driver.node.services
        self._primary = primary
        self._config = driver.node.services.config
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._wanted = False
        self._set_clock = True
        self._acked_at = 0.0
        self._turns: deque[tuple[int, int]] = deque()
        """Turns of this node that may not be on disk yet, with the offset after each, and the last one that is."""

    async def run(self) -> None:
        """Connect and follow until the link ends."""
        config = self._config
        opening = asyncio.open_connection(
            self._primary.host, self._primary.port, ssl=_tls(self), limit=4 * READ_BYTES
        )
        self._reader, self._writer = await asyncio.wait_for(opening, config.repl_timeout)
        session = self._shown()
        try:
            await self._introduce()
            history = self._services.replication.own_history
            offset = self._services.replication.offset
            failover = self._services.replication.failover
            words = ["FAILOVER"] if failover is not None else ["TAIL"] if self._primary.tail else []
            reply = await self._ask("HWSYNC", LINK_VERSION, history.oldest(offset), offset, *words)
            if failover is not None:
                self._services.replication.end_failover()
            granted = Continuation.read(reply)
            links = LinkReader(granted.seed)
            if granted.full:
                await self._copy(granted, links, offset)
            if not self._primary.tail:
                with self._node.lock:
                    self._services.replication.adopt(granted.history)
            self._primary.up(self._node.clock.monotonic())
            log.info(
                "following %s port %d from offset %d of history %s",
                self._primary.host, self._primary.port, granted.offset, granted.history.id,
            )  # fmt: skip
            while True:
                await self._take(links)
                links.feed(await self._receive())
        finally:
            self._writer.close()
            with self._node.lock:
                self._node.close_session(session)

    def _shown(self) -> Session:
        """Open a session that stands for the link in CLIENT LIST. CLIENT KILL ends the link."""
        local = self._writer.get_extra_info("sockname")
        session = self._node.connect(
            kind="tcp",
            address=address_text(self._primary.host, self._primary.port),
            local_address=address_text(*local[:2]),
            on_output=lambda one: self._writer.close() if one.closing else None,
        )
        session.client.role = "M"
        return session

    async def _introduce(self) -> None:
        config = self._config
        if config.masterauth:
            user = [config.masteruser] if config.masteruser else []
            await self._ask("AUTH", *user, config.masterauth)
        await self._ask("PING")
        port = config.replica_announce_port or self._port
        await self._ask("REPLCONF", "listening-port", port)
        if self._services.replication.may_lack:
            await self._ask("REPLCONF", "may-lack", "yes")
        if config.replica_announce_ip:
            await self._ask("REPLCONF", "ip-address", config.replica_announce_ip)

    async def _ask(self, *words: str | int) -> bytes:
        """Send a request and return the line of its reply. Raises `LinkRefused` for an error."""
        self._writer.write(encode(*words))
        line = await self._timed(self._reader.readline())
        if not line.endswith(b"\r\n"):
            raise LinkLost("the primary closed the connection")
        if line.startswith(b"-"):
            raise LinkRefused(
                f"it answers {words[0]} with {line[1:].decode('utf-8', 'replace').strip()!r}"
            )
        return line

    async def _receive(self) -> bytes:
        """Return what arrives next."""
        data = await self._timed(self._reader.read(READ_BYTES))
        if not data:
            raise LinkLost("the primary closed the connection")
        self._primary.heard = self._node.clock.monotonic()
        return data

    async def _timed(self, reading: Awaitable[bytes]) -> bytes:
        """Wait for a read, ``repl-timeout`` at most. Acknowledge each `ACK_S` meanwhile."""
        task = asyncio.ensure_future(reading)
        try:
            for _ in range(max(1, int(self._config.repl_timeout / ACK_S))):
                done, _pending = await asyncio.wait({task}, timeout=ACK_S)
                if done:
                    return task.result()
                if self._primary.state == "connected":
                    self._acknowledge()
        finally:
            task.cancel()
        raise LinkLost(f"the primary sent nothing for {self._config.repl_timeout} s (repl-timeout)")

    async def _take(self, links: LinkReader) -> None:
        """Apply what has arrived."""
        for received in links.read():
            if isinstance(received, SignOfLife):
                self._wanted = received.wanted
                self._keep_time(received)
                if self._primary.tail and received.offset == self._services.replication.offset:
                    with self._node.lock:
                        self._services.replication.took_over()
            elif isinstance(received, Continuation):
                with self._node.lock:
                    self._services.replication.adopt(received.history)
            elif isinstance(received, Groups):
                await self._apply(received)
            else:
                raise LinkRefused("the primary sent a part of a copy that was not requested")
        if self._wanted or self._node.clock.monotonic() - self._acked_at >= ACK_S:
            self._acknowledge()

    async def _apply(self, groups: Groups) -> None:
        while True:
            with self._node.lock:
                done = self._driver.follow(groups)
            if done == len(groups.starts):
                return
            groups = Groups(
                groups.data, groups.starts[done:], groups.ends[done:], groups.times[done:]
            )
            self._acknowledge()
            await asyncio.sleep(_ROOM_S)

    def _keep_time(self, sign: SignOfLife) -> None:
        """Let the replica's steady time be the primary's. Signs arrive late, never early: the first one sets the clock, and
        later ones set it forward."""
        times = self._services.times
        with self._node.lock:
            ahead_ms = sign.now_ms - times.now()
            if self._set_clock or ahead_ms > 0 or ahead_ms < -_CLOCK_MS:
                times.follow(sign.now_ms)
        self._set_clock = False

    def _acknowledge(self) -> None:
        self._acked_at = self._node.clock.monotonic()
        offset = self._services.replication.offset
        self._writer.write(encode("REPLCONF", "ACK", offset, "FACK", self._durable()))

    def _durable(self) -> int:
        """Return the offset up to which this store is known to be on disk; -1 if that is unknown."""
        journal, turns = self._services.storage.journal, self._turns
        if journal is None or journal.policy == "always":
            return -1 if journal is None else journal.offset
        if not turns or turns[-1][1] != journal.offset:
            turns.append((self._services.records.turn, journal.offset))
        on_disk = journal.statistics().durable_turn
        while len(turns) > 1 and turns[1][0] <= on_disk:
            turns.popleft()
        return turns[0][1] if turns[0][0] <= on_disk else -1

    # --- a copy of the store --------------------------------------------------------------------

    async def _copy(self, granted: Continuation, links: LinkReader, offset: int) -> None:
        """Receive a copy of the store, and replace the own one with it."""
        primary, replication = self._primary, self._services.replication
        primary.state, primary.copied_bytes, primary.copy_bytes = "sync", 0, 0
        keep = self._diverged(granted, offset)
        files = DiskFiles(self._config.dir)
        loop = asyncio.get_running_loop()
        log.info("receiving a copy of the primary's store at offset %d", granted.offset)
        try:
            writer = await loop.run_in_executor(None, CopyWriter, files)
            while True:
                for received in links.read():
                    if isinstance(received, FileBegins):
                        await loop.run_in_executor(None, writer.begin, received.name, received.size)
                        primary.copy_bytes += received.size
                    elif isinstance(received, FilePart):
                        await loop.run_in_executor(None, writer.write, received.data)
                        primary.copied_bytes += len(received.data)
                    elif isinstance(received, CopyEnds):
                        ending = partial(writer.complete, received.manifest, keep=keep)
                        await loop.run_in_executor(None, ending)
                        await self._replace()
                        if replication.offset != granted.offset:
                            raise LinkRefused(
                                f"the copy is at offset {replication.offset} instead of {granted.offset}"
                            )
                        return
                    else:
                        raise LinkRefused("the primary sent changes before the copy was complete")
                links.feed(await self._receive())
        finally:
            files.unlock()

    def _diverged(self, granted: Continuation, offset: int) -> str:
        """Return the name of the directory that keeps a store which has changes that the primary does not have; empty if
        this one has none."""
        own = self._services.replication.own_history
        at = own.parted(offset, granted.history, granted.offset)
        if at is None or offset <= at:
            return ""
        name = f"diverged-{own.id[:8]}-{at}"
        log.warning(
            "%d bytes of changes that the primary does not have are given up; the former store is kept in %s/%s, and "
            "`headwater journal dump` shows them",
            offset - at, self._config.dir, name,
        )  # fmt: skip
        return name

    async def _replace(self) -> None:
        """Load the copy in the place of the store."""
        node = self._node
        progress = LoadProgress(node.clock)
        node.unload(progress)
        try:
            for _ in reopen_steps(node, progress):
                await asyncio.sleep(0)
        except BaseException as error:
            self._driver.fail(error)
            raise
        self._driver.tick()


def _tls(link: _Link) -> ssl.SSLContext | None:
    config = link._config  # noqa: SLF001 - a part of the link
    if not config.tls_replication:
        return None
    from headwater.server.services.tls import client_context

    return client_context(config.located())
