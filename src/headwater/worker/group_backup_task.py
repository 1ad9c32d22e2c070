"""Writes the backups of a process's groups (`membership.backup_writer`), and its reports for `explain`: hanging
handlers and large transfers (`reports.hung`), expired entries (`reports.expired`), and for ordered consumers the
entries that wait for an earlier one (`reports.held`). One task writes for all consumers, in few requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from headwater.common.log_limit import LimitedLog
from headwater.groups.membership.backup_writer import BACKUP_SECONDS, BackupWriter, write_quiet
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import (
    Operation,
    Refused,
    batched,
    perform,
    server_ms,
    together,
)
from headwater.groups.protocol.store_errors import Remedy, Step, remedy
from headwater.groups.reports.expired import note_expired
from headwater.groups.reports.held import HeldKey, write_held
from headwater.groups.reports.hung import write_hung, write_transfers
from headwater.groups.settling.session import GroupSession
from headwater.worker.run.expiry import Expiry
from headwater.worker.store.clocks import Timers, call_upkeep
from headwater.worker.store.reaping import Reaping
from headwater.worker.store.shared_connection import SharedConnection
from headwater.worker.store.waiting import cancelled

log = logging.getLogger("headwater.worker")

LOOK_SECONDS = 0.25
"""Minimum interval at which the task looks for due backups, in seconds. It writes all due backups together."""

TOGETHER = 200
"""Maximum number of groups that are backed up in one request, so that other work need not wait long."""


class GroupBackups:
    """Writes the backups of all consumers in `consumers`. `run` is its task."""

    def __init__(self, clock: Timers) -> None:
        self.consumers: dict[BackedUp, None] = {}
        self._clock = clock
        self._wake = asyncio.Event()
        self._limited = LimitedLog(log, monotonic=clock.monotonic)
        self._scripts = True
        """True unless the user may not run scripts."""

    def add(self, one: BackedUp) -> None:
        """Back up this consumer's group from now on."""
        self.consumers[one] = None
        self._wake.set()

    async def run(self) -> None:
        """Write backups that are due, until cancelled."""
        while not cancelled():
            first = min((one.due for one in self.consumers), default=inf)
            self._wake.clear()
            timer = None
            if first < inf:
                pause = max(LOOK_SECONDS, first - self._clock.monotonic()) if first else 0.0
                timer = call_upkeep(self._clock, pause, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                if timer is not None:
                    timer.cancel()
            now = self._clock.monotonic()
            self._limited.report()
            nodes: dict[SharedConnection, list[tuple[BackedUp, GroupSession]]] = {}
            for one in self.consumers:
                session = one.session()
                if session is not None and one.due <= now:
                    nodes.setdefault(one.connection(), []).append((one, session))
            for connection, due in nodes.items():
                for part in batched(due, TOGETHER):
                    await self._write(connection, part)

    async def _write(
        self, connection: SharedConnection, part: Sequence[tuple[BackedUp, GroupSession]]
    ) -> None:
        try:
            (time,) = await connection.exchange([["TIME"]])
            at_ms = None if isinstance(time, Refused) else server_ms(time)
            if at_ms is not None:
                await self._write_quiet(connection, part, at_ms)
            rounds = (one.round(session, at_ms) for one, session in part)
            results: Sequence[float | Exception] = await perform(connection, together(rounds))
        except Exception as error:
            results = [error] * len(part)
        now = self._clock.monotonic()
        for (one, session), result in zip(part, results, strict=True):
            if isinstance(result, Exception):
                self._failed(one, session, result)
                result = BACKUP_SECONDS
            # This may be slightly early: `BackupWriter` writes as soon as the last backup is 1.8 s old.
            one.due = now + result - LOOK_SECONDS / 2

    def _failed(self, one: BackedUp, session: GroupSession, error: Exception) -> None:
        if remedy(error, Step.READ) is not Remedy.END:
            one.failed(session, error)
            return
        # Without a backup, the worker can still handle the entries of this group, and of its other groups.
        self._limited.error(
            "group %s of stream %s was not backed up; this is tried again",
            session.member.group,
            session.member.stream,
            error=error,
        )

    async def _write_quiet(
        self,
        connection: SharedConnection,
        part: Sequence[tuple[BackedUp, GroupSession]],
        at_ms: int,
    ) -> None:
        """Write the backups of quiet groups in one step if possible."""
        found = [one.quiet_writer(session, at_ms) for one, session in part]
        writers = [one for one in found if one is not None]
        if len(writers) > 1 and self._scripts:
            try:
                await perform(connection, write_quiet(writers, at_ms))
            except Refused as error:
                self._scripts = False
                log.debug("quiet groups are backed up one by one: %s", error)


class BackedUp:
    """The backups of one consumer's group, for the session that ``session`` returns once the group is joined."""

    def __init__(
        self,
        *,
        connection: Callable[[], SharedConnection],
        session: Callable[[], GroupSession | None],
        hung: Callable[[], str],
        transfers: Callable[[], str],
        expiry: Expiry,
        reaping: Reaping,
        held: Callable[[], Sequence[HeldKey]] | None = None,
    ) -> None:
        self.connection = connection
        self.session = session
        self.due = 0.0
        """Time when the next round is due, by the worker's monotonic clock in seconds."""
        self._reports: list[tuple[Callable[[], Any], Callable[[Member, Any], Operation[None]]]]
        self._reports = [(hung, write_hung), (transfers, write_transfers)]
        if held is not None:
            self._reports.append((held, write_held))
        self._said = [False] * len(self._reports)
        self._expiry = expiry
        self._said_expired = (0, 0)
        self._reaping = reaping
        self._writer: BackupWriter | None = None
        self._refused = False

    def quiet_writer(self, session: GroupSession, at_ms: int) -> BackupWriter | None:
        """Return the writer if the group was quiet recently; None on a cluster, whose scripts take keys of one slot."""
        writer, member = self._writer, session.member
        if writer is None or writer.member != member or member.able.cluster:
            return None
        return writer if writer.is_quiet(at_ms) else None

    def round(self, session: GroupSession, at_ms: int | None) -> Operation[float]:
        """Run one round at the server's time ``at_ms``, None if unknown. Return the seconds until the next round."""
        member = session.member
        yield from self._reaping.if_due(member)
        if self._writer is None or self._writer.member != member:
            self._writer = BackupWriter(member)
        done = yield from self._writer.round(at_ms)
        yield from self._say(member)
        yield from self._say_expired(member)
        if done.replaced:
            yield from session.create_again(replaced=True)
            return BACKUP_SECONDS  # the next round writes the restored entries
        session.backed_up()
        if done.set_back_ms and not member.able.verbs:
            log.warning(
                "the clock of the store was set back by %.1f s: on %s, delayed entries of %s become "
                "due that much later",
                done.set_back_ms / 1000,
                member.able.server,
                member.stream,
            )
        return done.again_ms / 1000

    def failed(self, session: GroupSession, error: Exception) -> None:
        """Handle an error of the store in a round."""
        member = session.member
        if remedy(error, Step.READ) is Remedy.RECONNECT:
            self.connection().renew()
        # The reader meets the same errors, and logs them.
        log.debug("group %s of %s was not backed up: %s", member.group, member.stream, error)
        if not isinstance(error, Refused) or error.code != "NOPERM":
            return
        session.backed_up()
        if not self._refused:
            self._refused = True
            log.warning(
                "group %s of stream %s cannot be backed up, so its delayed entries are lost if "
                "another client destroys it: %s",
                member.group,
                member.stream,
                error,
            )

    def _say(self, member: Member) -> Operation[None]:
        """Write the reports: hanging slots, transfers under way, and entries that wait for an earlier one. A
        report that is empty and was empty the last time is not written."""
        for n, (found, write) in enumerate(self._reports):
            report = found()
            if report or self._said[n]:
                yield from write(member, report)
            self._said[n] = bool(report)

    def _say_expired(self, member: Member) -> Operation[None]:
        """Write the number of entries that have expired since the last report."""
        (dropped, dead), now = self._said_expired, (self._expiry.dropped, self._expiry.dead)
        if now != self._said_expired:
            self._said_expired = now
            yield from note_expired(member, dropped=now[0] - dropped, dead=now[1] - dead)
