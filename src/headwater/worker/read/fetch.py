"""Reads for one consumer, in one task, over connections that all consumers of the process share.

Rule 1. At the start and after each broken connection, the consumer first recovers entries that it owns without
        knowing it, because the reply was lost with the connection. The recovery is repeated every
        ``claim_after``, because the server may run a read of a broken connection later, and no other worker might
        claim its entries.
Rule 2. A read takes only as many entries as there is room for. It blocks in the store, together with the reads of
        other streams (`blocked_reads`), and can be ended early.
Rule 3. The group is joined once. If the group is gone later, it is created again from the session's state
        (`settling.session`), never silently from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from headwater.client.redaction import redacted
from headwater.client.silence import LARGE, Silence, TransferProgress
from headwater.errors import HeadwaterError
from headwater.groups.membership.consumers import ConsumerInfo, foreign_consumers
from headwater.groups.membership.member import Member
from headwater.groups.protocol.capabilities import Capabilities
from headwater.groups.protocol.operation import Refused, perform
from headwater.groups.protocol.store_errors import Remedy, Step, refused_credentials, remedy
from headwater.groups.reading.claiming import (
    Delivered,
    MemberReader,
    claim_interval_ms,
    drop_gone,
    recover,
)
from headwater.groups.reading.limits import agree_on_limits, take_tokens
from headwater.groups.reading.suspect_reader import SuspectReader
from headwater.groups.reports.trimmed import unread_lost
from headwater.groups.settling.deleting import check_deleting
from headwater.groups.settling.session import GroupSession
from headwater.groups.settling.settling import one_step
from headwater.worker.declare.declaration import Consumer
from headwater.worker.leases.freshness import Freshness
from headwater.worker.observe.lost_entries import Losses
from headwater.worker.read.admission import Admission
from headwater.worker.read.ordered_fetch import LIST_SECONDS, OrderedFetch, OrderedReader
from headwater.worker.read.room import Room
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.settle.scope import Scope
from headwater.worker.settle.settle import megabytes
from headwater.worker.store.clocks import Timers, sleep
from headwater.worker.store.connections import Pause, moved
from headwater.worker.store.shared_connection import (
    SharedConnection,
    SharedConnections,
    StreamReads,
)
from headwater.worker.store.waiting import cancelled

log = logging.getLogger("headwater.worker")

RECOVER_SECONDS = 5.0
"""Minimum interval at which a reader looks for entries that it owns without knowing about them, in seconds."""

LOOK_SECONDS = 1.0
TIMES_LOOK = 20
"""Minimum pause between two checks for entries that were trimmed unread: in seconds, and as a multiple of the time
that such a check takes. The check precedes a read."""

NAMED = 5
"""Maximum number of other consumers of the group that the log names."""

AnyReader = MemberReader | SuspectReader | OrderedReader


class Fetcher:
    """Reads for one consumer. The entries of a read are admitted before the next read begins."""

    def __init__(
        self,
        scope: Scope,
        *,
        in_flight: InFlight,
        fresh: Freshness,
        losses: Losses,
        room: Room,
        admission: Admission,
        order: OrderedFetch | None = None,
        suspects_only: bool = False,
    ) -> None:
        consumer = scope.consumer
        self.joined = False
        self.reader: AnyReader | None = None
        self.pause = Pause()
        self._scope = scope
        self._answered_at = scope.clock.monotonic()
        self._progress = TransferProgress(self._log_large)
        self._waits = False
        self._recover_at = 0.0
        self._in_flight = in_flight
        self._fresh = fresh
        self._losses = losses
        self._suspects_only = suspects_only
        self._room = room
        self._admission = admission
        self._order = order
        self._able: Capabilities | None = None
        self._look_at = 0.0
        self._in_read = False
        self._mark: bytes | None = None
        self._reads = StreamReads(
            scope.connections,
            consumer.stream.name,
            consumer.group,
            name=scope.consumer_name,
            clock=scope.clock,
            stale=self._stale,
            slow=self._log_large,
            watches=order is not None,
        )
        scope.hooks.due.append(self.expect)
        scope.hooks.unread.append(lambda: bool(self.large_reply()))

    @property
    def consumer(self) -> Consumer:
        """The consumer for which this object reads."""
        return self._scope.consumer

    @property
    def _clock(self) -> Timers:
        return self._scope.clock

    @property
    def _connections(self) -> SharedConnections:
        return self._scope.connections

    @property
    def _who(self) -> str:
        return f"reader of {self._scope.name}"

    async def run(self) -> None:
        """Read until a stop. Raises errors that waiting does not resolve."""
        while not self._ends():
            try:
                await self._connections.locate()
                await self._read_over(self._connections.of(self.consumer.stream.name))
            except Exception as error:
                await self._recover_from(error)
        self._connections.availability.left(self._who)

    async def _recover_from(self, error: Exception) -> None:
        """Apply the remedy of `store_errors`. Raises errors that waiting does not resolve."""
        what = remedy(error, Step.READ if self.joined else Step.JOIN)
        if what is Remedy.REJOIN and self._in_flight.member is not None:
            await self._in_flight.rejoin(self._mark)
        elif what in (Remedy.END, Remedy.FAIL):
            if isinstance(error, refused_credentials()):
                raise HeadwaterError(
                    f"the store refuses the credentials of this worker: {error}"
                ) from error
            if isinstance(error, Refused):
                raise HeadwaterError(
                    f"{self.consumer.name} cannot join group {self.consumer.group!r} of stream "
                    f"{self.consumer.stream.name!r} at {redacted(self._connections.url)}: {error}"
                ) from error
            raise error
        else:
            seconds = self.pause.next()
            if moved(error):
                log.info("%s: %s", self._who, error)
            else:
                self._connections.availability.troubled(self._who, error, pause=seconds)
            await sleep(self._clock, seconds)

    def _well(self) -> None:
        """Record that the store works, because a read has succeeded. A read of a group is also a write."""
        self.pause.reset()
        self._answered_at = self._clock.monotonic()
        self._connections.availability.well(self._who)

    def age(self, now: float) -> float:
        """Return the seconds since the store last answered a read; 0 while there is no room for more."""
        if self._waits or self._admission.stopping:
            return 0.0
        replies = [one for one in self._replies() if one.received]
        moved_at = max((one.moved_at for one in replies), default=0.0)
        return max(0.0, now - max(self._answered_at, self._reads.answered_at, moved_at))

    def _replies(self) -> list[Silence]:
        """Return the replies under way that contain entries."""
        return [one for one in (self._progress.of, self._reads.reply) if one is not None]

    def large_reply(self) -> str:
        """Return a sentence that says how much of a large reply has arrived; empty if none is under way."""
        received = max((one.received for one in self._replies()), default=0)
        if received < LARGE:
            return ""
        return f"a large reply of the store is under way, {megabytes(received)} MB so far"

    def _log_large(self, _reply: Silence) -> None:
        self._reads.large = True
        if sentence := self.large_reply():
            log.info("%s: %s", self._who, sentence)

    def _ends(self) -> bool:
        """Return whether to stop. A cancellation counts even if a library swallowed it. In Python 3.11,
        asyncio.wait_for does that when the awaited object ends in the same turn of the loop."""
        return self._admission.stopping or cancelled()

    async def _read_over(self, client: SharedConnection) -> None:
        """Read until a stop. Raises errors of the store and of the connection."""
        member = await self._introduce(client)
        self._mark = self._in_flight.mark
        await self._recover(client, member)
        assert self.reader is not None, "a member that was introduced has a reader"
        while not self._ends():
            order = self._order
            if order is not None and (not order.reads or self._clock.monotonic() >= order.list_at):
                with self._progress.watched():
                    await order.prepare(client, member)
                self._well()
                continue
            limit = await self._until_room()
            if self._clock.monotonic() >= self._recover_at:
                await self._recover(client, member)
            elif limit or order is not None:
                sent = self._clock.monotonic()
                found = await self._read_once(client, self.reader, limit)
                self._well()
                await self._take(found, sent=max(sent, self._reads.sent_at))

    async def _recover(self, client: SharedConnection, member: Member) -> None:
        """Recover and accept the entries that this consumer owns without knowing it."""
        interval = max(RECOVER_SECONDS, self.consumer.claim_after_ms / 1000)
        sent = self._clock.monotonic()
        self._recover_at = sent + interval
        with self._progress.watched():
            found, gone = await perform(client, recover(member, list(self._in_flight.owned)))
        await perform(client, drop_gone(member, gone, self._losses.pending))
        await self._take(found, sent=sent)

    async def _take(self, found: Sequence[Delivered], *, sent: float) -> None:
        """Accept entries from the replies to commands that were sent at ``sent`` or later."""
        if found:
            self._fresh.read(sent)
        await self._admission.accept(found)

    async def _introduce(self, client: SharedConnection) -> Member:
        """Ask for the server's capabilities, and join the group if this is the first connection."""
        consumer = self.consumer
        able = await client.capabilities()
        member = Member(
            consumer.stream.name,
            consumer.group,
            self._scope.consumer_name,
            consumer.claim_after_ms,
            able,
        )
        in_flight = self._in_flight
        session = in_flight.session or GroupSession(member, unsettled=in_flight.unsettled)
        if not self.joined:
            await perform(client, session.join(position=consumer.start))
            if consumer.delete:
                await perform(client, check_deleting(member))
            if consumer.limits is not None:
                await perform(client, take_tokens([]))  # a server without Lua refuses this
            limits = "" if consumer.limits is None else consumer.limits.text
            await perform(client, agree_on_limits(member, limits))
            others = await perform(client, foreign_consumers(member))
            self.joined = True
            self._log_joined(member)
            log_foreign_consumers(member, others)
        session.member = member
        in_flight.session = session
        self._scope.changes.notify()
        if self._order is not None:
            self.reader, self._able = self._order.reader(member), able
        elif self.reader is None or able != self._able:
            kind = SuspectReader if self._suspects_only else MemberReader
            self.reader, self._able = kind(member, gone=self._losses.pending), able
        return member

    def _log_joined(self, member: Member) -> None:
        log.info(
            "%s %s %s as %s of group %s (%s)",
            self.consumer.name,
            "handles suspected poison messages of" if self._suspects_only else "reads",
            member.stream,
            member.consumer,
            member.group,
            member.able.server,
        )
        into = self.consumer.into
        if into is not None and not one_step(member, into.name):
            log.warning(
                "%s and %s are in different slots of the cluster: results are published before the "
                "acknowledgement, at least once",
                member.stream,
                into.name,
            )

    def _stale(self) -> bool:
        """Return whether entries were not renewed for longer than a lease, because this process was suspended."""
        if not self._in_flight.owned:
            return False
        late = self._clock.monotonic() - self._fresh.renewed_at
        return late > self.consumer.lease_ms / 1000

    async def _read_once(
        self, client: SharedConnection, reader: AnyReader, limit: int
    ) -> list[Delivered]:
        if self._stale():
            # A read that claims would claim entries of this consumer itself.
            began = self._clock.monotonic()
            await self._in_flight.renew_now()
            self._fresh.renewed(began)
        if not self._suspects_only and self._clock.monotonic() >= self._look_at:
            began = self._clock.monotonic()
            self._losses.unread(await perform(client, unread_lost(reader.member)))
            # XINFO STREAM returns two whole entries, which may take long over a slow link.
            now = self._clock.monotonic()
            self._look_at = now + max(LOOK_SECONDS, TIMES_LOOK * (now - began))
        if self._admission.paused or self._ends():
            return []  # a pause or stop was requested before there was a read to end
        self._mark = self._in_flight.mark
        self._in_read = True
        now = self._clock.monotonic()
        try:
            with self._progress.watched():
                found = await self._reads.perform(
                    reader.read(limit=limit, now=now), look_s=self._look_s(reader.member, now)
                )
            if self._reads.quiet_until is not None and isinstance(reader, MemberReader):
                reader.looked(self._reads.quiet_until)
            if len(found) < limit:
                # The group has read everything.
                self._look_at = max(self._look_at, self._clock.monotonic() + LOOK_SECONDS)
            return found
        finally:
            self._in_read = False
            self._scope.changes.notify()

    def _look_s(self, member: Member, now: float) -> float:
        """Return the seconds after which a read without entries looks at the pending entries."""
        if self._order is not None:
            return LIST_SECONDS
        if member.able.verbs:
            return max(LOOK_SECONDS, self._recover_at - now)
        return claim_interval_ms(member) / 1000

    async def _until_room(self) -> int:
        """Wait until there is room, and return the number of entries to read next; 0 at a stop."""

        def ready() -> bool:
            if self._admission.stopping:
                return True
            urgent = self._order is not None and self._order.urgent
            return not self._admission.paused and (urgent or self._room.free() > 0)

        if not ready():
            self._waits = True
            await self._scope.changes.until(ready)
            self._waits = False
            self._answered_at = self._clock.monotonic()
        return 0 if self._admission.stopping else self._room.free()

    async def quieten(self) -> None:
        """End the current read, if any, and return when it has ended."""
        while self._in_read:
            self._reads.return_by(0.0)
            await asyncio.sleep(
                0.002
            )  # real time, for the network: a test's clock does not affect it

    def expect(self, due: float) -> None:
        """Record that an entry can be claimed at ``due``, and end a read that would block for longer."""
        reader = self.reader
        if reader is None:
            return
        reader.expect(due)
        if reader.late and self._in_read:
            self._reads.return_by(due)


def log_foreign_consumers(member: Member, others: Sequence[ConsumerInfo]) -> None:
    """Log a warning that names the other consumers of the group."""
    if not others:
        return
    log.warning(
        "group %s of %s has consumers that are not Headwater workers: %s%s. They may handle delayed "
        "entries before they are due, and claim entries that workers handle. Stop them, or use another "
        "group for them; their entries are claimed after claim_after.",
        member.group,
        member.stream,
        ", ".join(
            f"{one.name} (seen {one.idle_ms / 1000:.0f} s ago, {one.pending} pending)"
            for one in others[:NAMED]
        ),
        f", and {len(others) - NAMED} more" if len(others) > NAMED else "",
    )
