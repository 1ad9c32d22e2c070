"""A consumer group: who reads, how far, and what is pending.

    pel      every pending entry, by id (pending.py); the only place where owner, time and count stand
    order    the owned ones by delivery time (delivery_order.py)
    released the zone of XNACK: unowned, first in, first out
    delayed  unowned and not before their due time (XSETTLE DELAY)

Rule 1. A pending entry is owned by one consumer, or released, or delayed; never two of these.
Rule 2. A consumer's ``pending`` is the number of records that name it.
Rule 3. ``last_id`` rises with deliveries and falls only by XGROUP SETID.
Rule 4. ``entries_read`` is a number or `UNKNOWN`; it is never guessed.

Methods from `set_id` on are mutators: they obey, and write one fact each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.engine.delivery_order import DeliveryOrder
from headwater.engine.pending import NOBODY, NOWHERE, PendingList
from headwater.limits import MAX_ENTRIES_COUNT

if TYPE_CHECKING:
    from headwater.engine.stream import Stream

UNKNOWN = -1
"""``entries_read`` that cannot be told; nil on the wire."""

NEVER = -1
"""``active_time`` of a consumer that has never been given an entry."""


class Consumer:
    """A member of a group. ``seen_time`` is its last command, ``active_time`` its last entry."""

    def __init__(self, cid: int, name: bytes, seen_time: int) -> None:
        self.cid = cid
        self.name = name
        self.seen_time = seen_time
        self.active_time = NEVER
        self.pending = 0


class ConsumerGroup:
    """One group of ``stream``; ``gid`` names it in facts."""

    def __init__(
        self, stream: Stream, name: bytes, gid: int, last_id: tuple[int, int], entries_read: int
    ) -> None:
        self.stream = stream
        self.keyspace = stream.keyspace
        self.facts = stream.keyspace.facts
        self.name = name
        self.gid = gid
        self.last_id = last_id
        self.entries_read = entries_read
        self.consumers: dict[bytes, Consumer] = {}
        self.by_cid: dict[int, Consumer] = {}
        self.next_cid = 1
        self.pel = PendingList()
        self.order = DeliveryOrder(self.pel)
        self.released: dict[tuple[int, int], None] = {}
        self.delayed: dict[tuple[int, int], int] = {}
        self.due_order: list[tuple[int, int, int]] = []
        """(due, ms, seq) of the delayed, sorted."""

    # --- reading --------------------------------------------------------------------------------

    def sorted_consumers(self) -> list[Consumer]:
        """Consumers in byte order of their names, as Redis walks them."""
        return [self.consumers[name] for name in sorted(self.consumers)]

    def consumer_of(self, at: int) -> Consumer | None:
        """The owner of the record at a position of ``pel``; None if released or delayed."""
        owner = self.pel.owner(at)
        return None if owner == NOBODY else self.by_cid[owner]

    def owns(self, consumer: Consumer | None, ms: int, seq: int) -> bool:
        """``ms-seq`` is pending under exactly this consumer."""
        at = self.pel.find(ms, seq)
        return consumer is not None and at != NOWHERE and self.pel.owner(at) == consumer.cid

    def next_due(self) -> int | None:
        """The earliest due time of a delayed entry, Unix ms."""
        return self.due_order[0][0] if self.due_order else None

    def due(self, now_ms: int) -> list[tuple[int, int]]:
        """Delayed ids whose time has come, by (due, id)."""
        end = bisect_right(self.due_order, now_ms, key=lambda item: item[0])
        return [(ms, seq) for _, ms, seq in self.due_order[:end]]

    def lag(self) -> int | None:
        """Entries that the group has still to read, None where it cannot be told."""
        stream = self.stream
        if stream.entries_added == 0 or stream.length == 0:
            return 0
        first = stream.log.first()
        if self.last_id < first and stream.max_deleted_id < first:
            return stream.length
        if self.entries_read != UNKNOWN and not stream.has_tombstone_from(*self.last_id):
            return stream.entries_added - self.entries_read
        read = stream.entries_read_at(self.last_id)
        return None if read == UNKNOWN else stream.entries_added - read

    def entries_read_after(self, ids: Iterable[tuple[int, int]], count: int) -> int:
        """``entries_read`` once the ``count`` next live entries, ``ids``, have been delivered.

        Entry by entry as Redis does it, until no deletion lies ahead; from there one each.
        """
        stream = self.stream
        read, last = self.entries_read, self.last_id
        for done, entry_id in enumerate(ids):
            counted = read != UNKNOWN and not stream.has_tombstone_from(*last)
            if counted and last >= stream.log.first():
                return min(read + count - done, MAX_ENTRIES_COUNT)
            read = stream.entries_read_at(entry_id)
            last = entry_id
        return read

    # --- mutators: the group and its consumers --------------------------------------------------

    def set_id(self, ms: int, seq: int, entries_read: int) -> None:
        """XGROUP SETID: the position, pending entries untouched."""
        self.last_id = (ms, seq)
        self.entries_read = entries_read
        self.facts.group_set_id(self.gid, ms, seq, entries_read)

    def create_consumer(self, name: bytes, cid: int, seen_time: int) -> Consumer:
        assert name not in self.consumers
        consumer = Consumer(cid, name, seen_time)
        self.consumers[name] = consumer
        self.by_cid[cid] = consumer
        self.next_cid = max(self.next_cid, cid + 1)
        self.facts.consumer_created(self.gid, cid, seen_time, name)
        return consumer

    def delete_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer and what it has pending (Redis: XGROUP DELCONSUMER)."""
        if consumer.pending:
            removed = self.pel.remove_owner(consumer.cid)
            assert removed == consumer.pending, f"{removed} records of {consumer.pending}"
            if not self.pel.length:
                self.order.clear()
        del self.consumers[consumer.name]
        del self.by_cid[consumer.cid]
        self.keyspace.forget_seen(self.gid, consumer.cid)
        self.facts.consumer_deleted(self.gid, consumer.cid)

    def see(self, consumer: Consumer, now_ms: int) -> None:
        """The consumer sent a command: not a fact of its own, it rides along (law 3)."""
        consumer.seen_time = now_ms
        self.keyspace.note_seen(self.gid, consumer.cid)

    def record_seen(self, consumer: Consumer, seen_time: int, active_time: int) -> None:
        """The fact for what only `see` has changed; the node asks for it once a second."""
        consumer.seen_time, consumer.active_time = seen_time, active_time
        self.facts.consumer_seen(self.gid, consumer.cid, seen_time, active_time)

    # --- mutators: pending entries --------------------------------------------------------------

    def deliver(
        self,
        consumer: Consumer,
        time: int,
        first: tuple[int, int],
        last: tuple[int, int],
        count: int,
        entries_read: int,
        *,
        noack: bool,
    ) -> None:
        """Give the ``count`` live entries from ``first`` to ``last``, all past ``last_id``, to
        ``consumer`` for the first time. With ``noack`` nothing becomes pending."""
        self._seen(consumer, time, consumer.active_time if noack else time)
        self.last_id = last
        self.entries_read = entries_read
        if not noack:
            spans, total = self.stream.log.spans(first, last)
            assert total == count, f"{total} entries between {first} and {last}, not {count}"
            for span in spans:
                for ms, seq in span.ids():
                    self._put(ms, seq, consumer.cid, time, 1)
        self.facts.delivered(self.gid, consumer.cid, time, first, last, count, entries_read, noack)

    def acknowledge(self, ids: Sequence[tuple[int, int]]) -> None:
        """Forget these pending entries, whoever owns them."""
        for ms, seq in ids:
            at = self.pel.find(ms, seq)
            assert at != NOWHERE, f"{ms}-{seq} is not pending"
            self._forget(at)
        self.facts.acknowledged(self.gid, ids)

    def own(
        self,
        consumer: Consumer,
        records: Sequence[tuple[int, int, int, int]],
        seen_time: int,
        active_time: int,
    ) -> None:
        """Make ``consumer`` own each ``(ms, seq, delivery time, count)``, pending before or not."""
        self._seen(consumer, seen_time, active_time)
        for ms, seq, time, count in records:
            self._put(ms, seq, consumer.cid, time, count)
        self.facts.owned(self.gid, consumer.cid, seen_time, active_time, records)

    def release(self, records: Sequence[tuple[int, int, int]]) -> None:
        """Take the owner from each ``(ms, seq, count)`` and put it at the end of the zone."""
        for ms, seq, count in records:
            self._put(ms, seq, NOBODY, 0, count)
            self.released[ms, seq] = None
        self.facts.released(self.gid, records)
        self.stream.db.signal(self.stream.key)

    def delay(self, records: Sequence[tuple[int, int, int, int]]) -> None:
        """Take the owner from each ``(ms, seq, due, count)`` until its due time."""
        for ms, seq, due, count in records:
            self._put(ms, seq, NOBODY, due, count)
            self.delayed[ms, seq] = due
            insort(self.due_order, (due, ms, seq))
        self.facts.delayed(self.gid, records)
        self.keyspace.delaying[self.gid] = self
        self.keyspace.note_due(self.due_order[0][0], self.gid)

    def end_delay(self, ids: Sequence[tuple[int, int]]) -> None:
        """The time of these delayed entries has come: to the end of the zone, in this order."""
        for ms, seq in ids:
            count = self.pel.delivery_count(self.pel.find(ms, seq))
            self._put(ms, seq, NOBODY, 0, count)
            self.released[ms, seq] = None
        self.facts.came_due(self.gid, ids)
        self.stream.db.signal(self.stream.key)

    # --- parts ----------------------------------------------------------------------------------

    def _seen(self, consumer: Consumer, seen_time: int, active_time: int) -> None:
        consumer.seen_time, consumer.active_time = seen_time, active_time
        if self.keyspace.unseen:
            self.keyspace.forget_seen(self.gid, consumer.cid)

    def _put(self, ms: int, seq: int, owner: int, time: int, count: int) -> None:
        """Set a record's owner, time and count; make it if it is not there."""
        at = self.pel.find(ms, seq)
        if at == NOWHERE:
            at = self.pel.insert(ms, seq, owner=owner, time=time, count=count)
        else:
            self._leave(at, ms, seq)
            self.pel.change(at, owner=owner, time=time, count=count)
        if owner != NOBODY:
            self.by_cid[owner].pending += 1
            self.order.add(at, time, ms, seq)

    def _forget(self, at: int) -> None:
        self._leave(at, *self.pel.id(at))
        self.pel.remove(at)
        if not self.pel.length:
            self.order.clear()

    def _leave(self, at: int, ms: int, seq: int) -> None:
        """Take the record at ``at`` off its consumer, the zone or the delayed."""
        owner = self.pel.owner(at)
        if owner != NOBODY:
            self.by_cid[owner].pending -= 1
        elif (ms, seq) in self.released:
            del self.released[ms, seq]
        else:
            due = self.delayed.pop((ms, seq))
            place = bisect_left(self.due_order, (due, ms, seq))
            del self.due_order[place]
            if not self.due_order:
                self.keyspace.delaying.pop(self.gid, None)
            elif place == 0:
                self.keyspace.note_due(self.due_order[0][0], self.gid)
