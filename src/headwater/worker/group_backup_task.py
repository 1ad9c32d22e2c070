"""The task of a consumer that writes the backup of its group (`groups.backup_writer`), whether its handlers hang
(`groups.hung`), how many entries expired (`groups.expired`), and for an ordered consumer which entries wait for their key (`groups.held`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headwater.groups.backup_writer import BACKUP_SECONDS, BackupWriter
from headwater.groups.expired import note_expired
from headwater.groups.held import HeldKey, write_held
from headwater.groups.hung import write_hung
from headwater.groups.member import Member
from headwater.groups.operation import Refused, perform
from headwater.groups.session import GroupSession
from headwater.groups.store_errors import Remedy, Step, remedy
from headwater.worker.clocks import Timers, sleep
from headwater.worker.expiry import Expiry
from headwater.worker.waiting import Changes, cancelled

if TYPE_CHECKING:
    import redis.asyncio

log = logging.getLogger("headwater.worker")


class BackupTask:
    """Writes backups for the session that ``session`` returns, once there is one."""

    def __init__(
        self,
        *,
        clock: Timers,
        client: redis.asyncio.Redis,
        session: Callable[[], GroupSession | None],
        changes: Changes,
        hung: Callable[[], str],
        expiry: Expiry,
        held: Callable[[], Sequence[HeldKey]] | None = None,
    ) -> None:
        self._clock = clock
        self._client = client
        self._session = session
        self._changes = changes
        self._hung = hung
        self._expiry = expiry
        self._said_expired = (0, 0)
        self._held = held
        self._said_held = self._said_hung = False
        self._writer: BackupWriter | None = None
        self._refused = False

    async def run(self) -> None:
        """Run a round of `BackupWriter` about every `BACKUP_SECONDS`, until cancelled."""
        await self._changes.until(lambda: self._session() is not None)
        while not cancelled():
            session = self._session()
            pause = BACKUP_SECONDS if session is None else await self._round(session)
            await sleep(self._clock, pause, upkeep=True)

    async def _round(self, session: GroupSession) -> float:
        """Run one round. Return the seconds until the next one."""
        member = session.member
        if self._writer is None or self._writer.member != member:
            self._writer = BackupWriter(member)
        try:
            done = await perform(self._client, self._writer.round())
            await self._say_held(member)
            await self._say_hung(member)
            await self._say_expired(member)
            if done.replaced:
                await perform(self._client, session.create_again(replaced=True))
                return BACKUP_SECONDS  # the next round writes the restored entries
        except Exception as error:
            what = remedy(error, Step.READ)
            if what is Remedy.END:
                raise
            if what is Remedy.RECONNECT:
                await self._client.connection_pool.disconnect(inuse_connections=False)
            # The reader meets the same errors, and logs them.
            log.debug("group %s of %s was not backed up: %s", member.group, member.stream, error)
            if not isinstance(error, Refused) or error.code != "NOPERM":
                return BACKUP_SECONDS
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
            return BACKUP_SECONDS
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

    async def _say_hung(self, member: Member) -> None:
        """Write that every slot hangs, if that is so, or was so the last time."""
        hung = self._hung()
        if hung or self._said_hung:
            await perform(self._client, write_hung(member, hung))
        self._said_hung = bool(hung)

    async def _say_expired(self, member: Member) -> None:
        """Write how many entries have expired since the last time."""
        (dropped, dead), now = self._said_expired, (self._expiry.dropped, self._expiry.dead)
        if now != self._said_expired:
            self._said_expired = now
            more = note_expired(member, dropped=now[0] - dropped, dead=now[1] - dead)
            await perform(self._client, more)

    async def _say_held(self, member: Member) -> None:
        """Write which entries wait for their key, if some do, or did the last time."""
        held = [] if self._held is None else self._held()
        if held or self._said_held:
            await perform(self._client, write_held(member, held))
        self._said_held = bool(held)
