"""Reads for an ordered consumer: takes over from the former reader, then reads new and due entries.

    key taken ──▶ all pending entries are listed ──▶ new entries are read, first entries are claimed
        ▲                                                        │
        ├───────────── key lost: clear lines, hand back ◀────────┤
        └── every slot busy: hand back what waits, release key ◀─┘

Here *the key* is the reader's key of the group (`reading.ordered`), and a *line* is the queue of the entries of
one message key.

Rule 1. No new entry is read before all pending entries are listed, because each may be the first of its line.
Rule 2. A read that blocks in the store does not deliver entries: it waits for a new entry, and another command
        reads the entry. Otherwise a suspended process that has lost the key could be given entries that the next
        reader would then miss.
Rule 3. Only the first entry of each line is claimed, in id order. The pending entries are listed again at
        intervals, because others may have made entries pending, such as replayed dead letters.
Rule 4. If every slot runs the same handler for long, and an entry waits, another process may read. This process
        releases the key, and keeps the entries that it handles. The next reader waits for these entries as
        for all that another consumer owns. This process takes the free key again when a slot is free.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation, Refused, perform
from headwater.groups.protocol.store_errors import lost_connection
from headwater.groups.reading.claiming import MAX_BLOCK_MS, Delivered, Gone, claim_interval_ms
from headwater.groups.reading.ordered import (
    PAGE,
    Claimed,
    NotTheReader,
    claim,
    last_delivered,
    pending_page,
    read_new,
    release_reader_key,
    take_reader_key,
    wait_for_new,
)
from headwater.worker.declare.owned import Owned, State, Stop
from headwater.worker.leases.reader_lease import ReaderLease
from headwater.worker.read.ordering import Ordering
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.settle.scope import Scope
from headwater.worker.store.clocks import Timer, call_upkeep
from headwater.worker.store.shared_connection import SharedConnection

log = logging.getLogger("headwater.worker")

LIST_SECONDS = 1.0
"""Minimum interval of listing the pending entries, in seconds. Listing takes at most a twentieth of the time."""

MOST_KNOWN = 100_000
"""Number of known unsettled entries at which a reader stops reading. Each entry takes about 400 bytes."""

FULL_SECONDS = 0.25
"""Maximum time for which waiting entries may fill the room, in seconds. A retry is often due by then."""

BUSY_SECONDS = 0.95
"""Seconds for which every slot runs the same handlers before another process has read the waiting entries. The
time until that process looks for the reader's key is included."""

TIMES_TAKING = 20
"""Minimum time for which a process keeps the key, as a multiple of the time that taking over took."""

MARGIN = 0.1
"""Fraction at the end of the key's lifetime in which it is not released: another process may have it."""


class Slots(NamedTuple):
    """The handler slots of the consumer."""

    offer: Callable[[Sequence[Owned]], None]
    """Function that gives entries to the slots."""
    free: Callable[[], bool]
    """Function that returns whether a slot is free and this process owns the entries of all running handlers. A
    handler that runs on after its entry was lost ignores its cancellation, or runs in a thread."""
    busy_since: Callable[[], float | None]
    """Function that returns the time since which every slot runs the same handler; None if a slot is free."""


class OrderedFetch:
    """Reads in order for one consumer, while it has ``lease``."""

    def __init__(
        self, scope: Scope, *, in_flight: InFlight, lease: ReaderLease, slots: Slots, gone: Gone
    ) -> None:
        self.consumer = scope.consumer
        self.clock = scope.clock
        self.lease = lease
        self.ordering = Ordering(
            scope.consumer, clock=scope.clock, offer=slots.offer, expect=self._expect
        )
        self.list_at = 0.0
        self._in_flight = in_flight
        self._changes = scope.changes
        self._hooks = scope.hooks
        self._gone = gone
        self._slots = slots
        self._listed = False
        self._yields = False
        """True if another process should read."""
        self._keep_until = 0.0
        """Time until which this process keeps the key, because taking over takes long."""
        self._yield_timer: Timer | None = None
        self._was_reader = False
        """True if this process was the reader and did not lose the key. Reading again is logged at DEBUG."""
        self._full_at: float | None = None
        """Time since which entries that must wait fill the room while a slot is free; None if they do not."""
        self._timer: Timer | None = None
        self._timer_due = 0.0
        scope.hooks.settled.append(self.ordering.settled)
        scope.hooks.dropped.append(self.ordering.away)
        scope.hooks.overtaken.append(self._lost)

    @property
    def reads(self) -> bool:
        """True if this process may read, because it has the key and has listed the pending entries."""
        return self._listed and self.lease.held and not self._yields

    @property
    def urgent(self) -> bool:
        """True if there is work that does not need room for entries."""
        due = self.ordering.next_due
        now = self.clock.monotonic()
        return not self.reads or now >= self.list_at or (due is not None and due <= now)

    def yield_if_busy(self) -> None:
        """Let another process read, now or later, if every slot runs one handler for long and an entry waits."""
        if self._yield_timer is not None:
            return
        due = self._yield_due()
        left = due - self.clock.monotonic()
        if left > 1e-5:  # the clock counts in microseconds
            if left < math.inf:
                self._yield_timer = self.clock.call_later(left, self._look_busy)
        elif not self._yields:
            self._yields = True
            self._hooks.expect(self.clock.monotonic())
            self._changes.notify()

    def _look_busy(self) -> None:
        self._yield_timer = None
        self.yield_if_busy()

    def _yield_due(self) -> float:
        """Return the time at which to let another process read if nothing changes; ``math.inf`` if it need not."""
        since, member = self._slots.busy_since(), self._in_flight.member
        if since is None or member is None or not self.reads:
            return math.inf
        if len(self._in_flight.owned) < self.consumer.prefetch and not self._in_flight.unbegun():
            return math.inf
        look_s = claim_interval_ms(member) / 1000
        return max(self._keep_until, since + max(look_s / 2, BUSY_SECONDS - look_s))

    def make_room(self, *, full: bool) -> None:
        """Hand back the entries that wait for an earlier entry of their key, if they have filled the room for
        `FULL_SECONDS` while a slot is free for other keys. They keep their places in the lines."""
        now = self.clock.monotonic()
        if not full or len(self.ordering.entries) >= MOST_KNOWN:
            self._full_at = None
        elif self._full_at is None:
            self._full_at = now
            self.clock.call_later(FULL_SECONDS, self._changes.notify)
        elif now - self._full_at >= FULL_SECONDS - 1e-5:  # the clock counts in microseconds
            self._full_at = None
            self._in_flight.hand_back(
                [one for one in self._in_flight.unbegun() if not self.ordering.given(one)]
            )

    def reader(self, member: Member) -> OrderedReader:
        """Return a reader for one connection."""
        return OrderedReader(member, self, gone=self._gone)

    def _expect(self, due: float) -> None:
        self._hooks.expect(due)
        self._wake_at(due)

    def wake_again(self) -> None:
        """Set the timer for the next due entry, after other entries were taken."""
        following = self.ordering.next_due
        if following is not None:
            self._wake_at(following)

    def _wake_at(self, due: float) -> None:
        """Wake a reader that waits for room at the time ``due``, when there is work that does not need room."""
        if self._timer is not None and self._timer_due <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        left = max(0.0, due - self.clock.monotonic())
        if due == self.list_at:
            self._timer = call_upkeep(self.clock, left, self._due)
        else:
            self._timer = self.clock.call_later(left, self._due)

    def _due(self) -> None:
        self._timer = None
        self._changes.notify()
        now = self.clock.monotonic()
        later = [
            due for due in (self.ordering.next_due, self.list_at) if due is not None and due > now
        ]
        if later:
            self._wake_at(min(later))

    # --- the key ----------------------------------------------------------------------------------

    async def prepare(self, client: SharedConnection, member: Member) -> None:
        """Become the reader, or wait before the next attempt. Then list the pending entries."""
        if self._yields:
            await self._hand_over(client, member)
        if not self.lease.held:
            self._listed = False
            if not await self._take(client, member):
                await self._wait_to_take(claim_interval_ms(member) / 1000)
                return
        began = self.clock.monotonic()
        if not self._listed:
            self.ordering.clear()
            for owned in self._in_flight.owned.values():
                self.ordering.runs(owned)
        await self._list(client, member)
        now = self.clock.monotonic()
        self.list_at = now + max(LIST_SECONDS, 20 * (now - began))
        self._wake_at(self.list_at)
        if not self._listed and self.lease.held:
            self._listed = True
            self._keep_until = now + TIMES_TAKING * (now - began)
            level = logging.DEBUG if self._was_reader else logging.INFO
            self._was_reader = True
            log.log(
                level,
                "%s is the reader of %s for group %s (pending entries: %d)",
                member.consumer,
                member.stream,
                member.group,
                len(self.ordering.entries),
            )

    async def _take(self, client: SharedConnection, member: Member) -> bool:
        """Try to take the key, and return whether this process is the reader now."""
        if not self._slots.free():
            return False
        began = self.clock.monotonic()
        if not await perform(client, take_reader_key(member, ttl_ms=self.lease.ttl_ms)):
            return False
        self.lease.took(began)
        return True

    async def _wait_to_take(self, seconds: float) -> None:
        """Wait ``seconds`` before the next attempt to take the key, or until a slot becomes free."""
        was_free = self._slots.free()
        until = self.clock.monotonic() + seconds
        timer = self.clock.call_later(seconds, self._changes.notify)
        try:
            await self._changes.until(
                lambda: (
                    self.clock.monotonic() >= until - 1e-5 or (not was_free and self._slots.free())
                )
            )
        finally:
            timer.cancel()

    async def _hand_over(self, client: SharedConnection, member: Member) -> None:
        """Let another process read, unless a slot is free by now (rule 4)."""
        self._yields = False
        if self._yield_due() > self.clock.monotonic() + 1e-5:
            return
        waiting = self._in_flight.unbegun()
        self._in_flight.hand_back(waiting)
        # The next reader should find the entries handed back.
        await self._changes.until(
            lambda: not self.lease.held or not any(map(self._in_flight.owns, waiting))
        )
        self._listed = False
        self.ordering.clear()
        if self._end_lease():
            await perform(client, release_reader_key(member, ttl_ms=self.lease.ttl_ms))

    async def _list(self, client: SharedConnection, member: Member) -> None:
        """List the pending entries that are not yet known, and start the entries whose turn has come."""
        start: bytes | None = b"-"
        listed: list[bytes] = []
        while start is not None and self.lease.held:
            page = pending_page(member, self.ordering.entries, start=start, gone=self._gone)
            found, start = await perform(client, page)
            for entry_id, fields in found:
                self.ordering.listed(entry_id, fields)
                listed.append(entry_id)
        self.ordering.advance(listed)
        self.ordering.wake()

    def _lost(self) -> None:
        """Cancel all handlers and hand back all entries, because another process is or may be the reader now."""
        log.warning(
            "%s of %s: this process is no longer the reader of its group; its handlers are cancelled",
            self.consumer.name,
            self.consumer.stream.name,
        )
        self._listed = self._was_reader = False
        self.ordering.clear()
        owned = [one for one in self._in_flight.owned.values() if one.state is not State.SETTLING]
        for one in owned:
            one.mark_lost()
            one.stop(Stop.LOST)
        self._in_flight.hand_back(owned)
        self._hooks.expect(self.clock.monotonic())
        self._changes.notify()

    async def release(self) -> None:
        """Release the key at the end, so that another process can read immediately."""
        left = self._end_lease()
        self.close()
        member = self._in_flight.member
        if left == 0 or member is None:
            return
        try:
            await asyncio.wait_for(
                perform(
                    self._in_flight.client, release_reader_key(member, ttl_ms=self.lease.ttl_ms)
                ),
                left,
            )
        except (Refused, TimeoutError) as error:
            log.debug("the reader's key was not released, and expires by itself: %s", error)
        except lost_connection() as error:
            log.debug("the reader's key was not released, and expires by itself: %s", error)

    def _end_lease(self) -> float:
        """Stop renewing the key. Return the seconds for which this process still has it; 0 if the time is too
        short to release it."""
        left = self.lease.until - self.clock.monotonic()
        held = self.lease.held and left > MARGIN * self.lease.ttl_ms / 1000
        self.lease.end()
        return left if held else 0.0

    def close(self) -> None:
        """Stop watching the key, and stop the timers."""
        self.lease.end()
        for timer in (self._timer, self._yield_timer):
            if timer is not None:
                timer.cancel()


class OrderedReader:
    """Reads for one member, like `claiming.MemberReader`. `Ordering` decides which entries to claim."""

    def __init__(self, member: Member, fetch: OrderedFetch, *, gone: Gone) -> None:
        self.member = member
        self._fetch = fetch
        self._gone = gone
        self._waits_until = 0.0

    @property
    def late(self) -> bool:
        """True if the current read blocks for longer than it now should."""
        due = self._fetch.ordering.next_due
        return not self._fetch.reads or (due is not None and due < self._waits_until)

    def expect(self, due: float) -> None:
        """Do nothing, because `Ordering` knows the due times."""

    def read(self, *, limit: int, now: float) -> Operation[list[Delivered]]:
        """Claim due first entries of lines, up to ``limit`` or the number of slots, whichever is greater. If none
        is due, read up to ``limit`` new entries."""
        most = min(PAGE, max(limit, self._fetch.consumer.concurrency))
        asked = self._fetch.ordering.due(most)
        self._fetch.wake_again()
        if asked:
            return (yield from self._claim(asked))
        if limit <= 0:
            return []
        try:
            found = yield from read_new(self.member, limit=limit)
        except NotTheReader:
            self._fetch.lease.lose()
            return []
        wait = 0 if found else self._wait_ms(now)
        if wait > 0:
            self._waits_until = now + wait / 1000
            seen = yield from last_delivered(self.member)
            yield from wait_for_new(self.member, seen, block_ms=wait)
        return found

    def _claim(self, asked: Sequence[bytes]) -> Operation[list[Delivered]]:
        answer = Claimed([], {}, [])  # after a broken connection, they are claimed again
        try:
            answer = yield from claim(self.member, asked, gone=self._gone)
        except NotTheReader:
            self._fetch.lease.lose()
        finally:
            self._fetch.ordering.claimed(asked, answer)
        return answer.found

    def _wait_ms(self, now: float) -> int:
        """Return the milliseconds for which a read may block in the store."""
        fetch = self._fetch
        if not fetch.reads:
            return 0
        ends = [fetch.list_at]
        due = fetch.ordering.next_due
        if due is not None:
            ends.append(due)
        return min(MAX_BLOCK_MS, math.ceil((min(ends) - now) * 1000))
