"""A consumer group: its consumers, its position, and its pending entries.

    pel      every pending entry by id (pending.py); only here are owner, time and delivery count stored
    order    owned entries by delivery time (delivery_order.py)
    released entries without an owner (XNACK), claimable in the order of their release
    delayed  entries without an owner that cannot be claimed before their due time (XSETTLE DELAY)

Rule 1. A pending entry is either owned by one consumer, or released, or delayed.
Rule 2. A consumer's ``pending`` is the number of records that it owns.
Rule 3. ``last_id`` rises with deliveries. Only XGROUP SETID can lower it.
Rule 4. ``entries_read`` is at most the stream's ``entries_added``, or `UNKNOWN`, so a lag is never negative.

Methods from `set_id` to `end_delay` are mutators: they make no choices, and write one fact each, except `see`.
Many ids, or records that begin with an id, are passed as consecutive words of an array (`model.flat_words`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from headwater.common.limits import MAX_ENTRIES_COUNT
from headwater.common.model import UNKNOWN, flat_words
from headwater.engine.accounts.memory_account import (
    CONSUMER_BYTES,
    DELAYED_BYTES,
    RELEASED_BYTES,
    text_bytes,
)
from headwater.engine.entries.entry_block import Span
from headwater.engine.groups.consumer import GroupConsumer
from headwater.engine.groups.delivery_order import DeliveryOrder
from headwater.engine.groups.pending import NOBODY, PendingList
from headwater.engine.shared.history import StreamHistory

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import word_at


class ConsumerGroup:
    """One group of ``stream``. Facts refer to it by ``gid``."""

    def __init__(
        self,
        stream: StreamHistory,
        name: bytes,
        gid: int,
        last_id: tuple[int, int],
        entries_read: int,
    ) -> None:
        self.stream = stream
        self.keyspace = stream.keyspace
        self.facts = stream.keyspace.facts
        self.name = name
        self.gid = gid
        self.last_id = last_id
        self.entries_read = entries_read
        self.consumers: dict[bytes, GroupConsumer] = {}
        self.by_cid: dict[int, GroupConsumer] = {}
        self.next_cid = 1
        self.pel = PendingList(stream.keyspace.memory)
        self.order = DeliveryOrder(self.pel)
        self.released: dict[tuple[int, int], None] = {}
        self.delayed: dict[tuple[int, int], int] = {}
        self.due_order: list[tuple[int, int, int]] = []
        """(due, ms, seq) of each delayed entry, sorted."""
        self.names_bytes = text_bytes(name)
        """The memory of the names of the group and its consumers."""
        self.booked = 0

    def __del__(self) -> None:
        self.keyspace.memory.groups -= self.booked

    # --- reading --------------------------------------------------------------------------------

    def sorted_consumers(self) -> list[GroupConsumer]:
        """Return the consumers in byte order of their names, the order of Redis."""
        return [self.consumers[name] for name in sorted(self.consumers)]

    def consumer_of(self, at: int) -> GroupConsumer | None:
        """Return the owner of the record at a position of ``pel``; None if it is released or delayed."""
        return self.by_cid.get(self.pel.owner(at))

    def owns(self, consumer: GroupConsumer | None, ms: int, seq: int) -> bool:
        """Return whether ``ms-seq`` is pending and owned by this consumer; False for None."""
        at = self.pel.find(ms, seq)
        return consumer is not None and at >= 0 and self.pel.owner(at) == consumer.cid

    def next_due(self) -> int | None:
        """Return the earliest due time of a delayed entry in steady ms, or None if no entry is delayed."""
        return self.due_order[0][0] if self.due_order else None

    def due(self, now_ms: int) -> array[int]:
        """Return the ids of delayed entries that are due, sorted by (due, id)."""
        end = bisect_right(self.due_order, now_ms, key=lambda item: item[0])
        return flat_words([one[1:] for one in self.due_order[:end]])

    def lag(self) -> int | None:
        """Return the number of entries not yet delivered to the group, None if it is unknown."""
        stream = self.stream
        if stream.entries_added == 0 or stream.length == 0:
            return 0
        first = stream.log.first()
        if self.last_id < first and stream.max_deleted_id < first:
            return stream.length
        read = self.entries_read
        if read == UNKNOWN or stream.has_tombstone_from(*self.last_id):
            read = stream.entries_read_at(self.last_id)
        return None if read == UNKNOWN else stream.entries_added - read

    def entries_read_after(self, spans: list[Span], count: int) -> int:
        """Return ``entries_read`` after delivery of the ``count`` next live entries, which are ``spans``.

        Counts entry by entry, as Redis does, until no deleted entry is ahead. From there on, each entry counts as one.
        """
        stream = self.stream
        read, last, done = self.entries_read, self.last_id, 0
        for span in spans:
            ids: array[int] | None = None
            for at in range(span.first, span.end):
                counted = read != UNKNOWN and not stream.has_tombstone_from(last[0], last[1])
                counted = counted and last >= stream.log.first()
                if counted:
                    left = count - done
                    if read <= stream.entries_added - left:
                        return read + left
                    if stream.entries_added == MAX_ENTRIES_COUNT:
                        return MAX_ENTRIES_COUNT
                    counted = read < stream.entries_added  # else ENTRIESREAD was set too high
                if ids is None:
                    ids = span.block.known_ids()
                last = (word_at(ids, 2 * at), word_at(ids, 2 * at + 1))
                read = read + 1 if counted else stream.entries_read_at(last)
                done += 1
        return read

    # --- mutators: the group and its consumers --------------------------------------------------

    def set_id(self, ms: int, seq: int, entries_read: int) -> None:
        """Set the position (XGROUP SETID). Pending entries stay."""
        self.last_id = (ms, seq)
        self.entries_read = entries_read
        self.facts.group_set_id(self.gid, ms, seq, entries_read)

    def create_consumer(self, name: bytes, cid: int, seen_time: int) -> GroupConsumer:
        assert name not in self.consumers
        consumer = GroupConsumer(cid, name, seen_time)
        self.consumers[name] = consumer
        self.by_cid[cid] = consumer
        self.names_bytes += text_bytes(name)
        self.next_cid = max(self.next_cid, cid + 1)
        self.book()
        self.facts.consumer_created(self.gid, cid, seen_time, name)
        return consumer

    def delete_consumer(self, consumer: GroupConsumer) -> None:
        """Remove a consumer and its pending entries (XGROUP DELCONSUMER)."""
        if consumer.pending:
            removed = self.pel.remove_owner(consumer.cid)
            assert removed == consumer.pending, f"{removed} records of {consumer.pending}"
            if not self.pel.length:
                self.order.clear()
        del self.consumers[consumer.name], self.by_cid[consumer.cid]
        self.names_bytes -= text_bytes(consumer.name)
        self.book()
        self.keyspace.forget_seen(self.gid, consumer.cid)
        self.facts.consumer_deleted(self.gid, consumer.cid)

    def see(self, consumer: GroupConsumer, now_ms: int) -> None:
        """Record that the consumer sent a command. The time is written later, by `record_seen` or another fact."""
        consumer.seen_time = now_ms
        self.keyspace.note_seen(self.gid, consumer.cid)

    def record_seen(self, consumer: GroupConsumer, seen_time: int, active_time: int) -> None:
        """Write the fact for times that `see` has changed. The node calls it at most once a second."""
        consumer.seen_time, consumer.active_time = seen_time, active_time
        self.facts.consumer_seen(self.gid, consumer.cid, seen_time, active_time)

    # --- mutators: pending entries --------------------------------------------------------------

    def deliver(
        self,
        consumer: GroupConsumer,
        time: int,
        first: tuple[int, int],
        last: tuple[int, int],
        count: int,
        entries_read: int,
        noack: bool,
    ) -> None:
        """Call `deliver_spans` with the ``count`` live entries from ``first`` to ``last``."""
        spans, total = self.stream.log.spans(first, last)
        assert total == count, f"{total} entries between {first} and {last}, not {count}"
        self.deliver_spans(consumer, time, spans, count, entries_read, noack)

    def deliver_spans(
        self,
        consumer: GroupConsumer,
        time: int,
        spans: list[Span],
        count: int,
        entries_read: int,
        noack: bool,
    ) -> None:
        """Deliver ``spans`` to ``consumer`` for the first time. They are ``count`` consecutive live entries
        after ``last_id``. With ``noack`` they do not become pending."""
        self._seen(consumer, time, consumer.active_time if noack else time)
        before, first = self.last_id, None
        for span in spans:
            ids = span.block.known_ids()
            at, last = 2 * span.first, 2 * span.end - 2
            if first is None:
                first = (word_at(ids, at), word_at(ids, at + 1))
            self.last_id = (word_at(ids, last), word_at(ids, last + 1))
            if not noack:
                self._add(consumer, ids, span.first, span.end, time)
        assert first is not None, "nothing was delivered"
        assert first > before, f"{first} was delivered before {before}"
        self.entries_read = entries_read
        self.facts.delivered(
            self.gid, consumer.cid, time, first, self.last_id, count, entries_read, noack
        )

    def acknowledge(self, ids: array[int]) -> None:
        """Remove these pending entries, regardless of their owner. Each id must occur once."""
        pel, done, total = self.pel, 0, len(ids) // 2
        while done < total:
            ms, seq = word_at(ids, 2 * done), word_at(ids, 2 * done + 1)
            at = pel.find(ms, seq)
            assert at >= 0, f"{ms}-{seq} is not pending"
            count = pel.same_ids(at, ids, done)
            self._leave_run(at, count)
            pel.remove(at, count)
            done += count
        if not pel.length:
            self.order.clear()
        self.facts.acknowledged(self.gid, ids)

    def own(
        self, consumer: GroupConsumer, records: array[int], seen_time: int, active_time: int
    ) -> None:
        """Make ``consumer`` the owner of each ``(ms, seq, delivery time, count)``, whether pending before or not."""
        self._seen(consumer, seen_time, active_time)
        pel, order, cid = self.pel, self.order, consumer.cid
        begun = run = run_time = 0
        for base in range(0, len(records), 4):
            ms, seq = word_at(records, base), word_at(records, base + 1)
            time, count = word_at(records, base + 2), word_at(records, base + 3)
            at = pel.find(ms, seq)
            if run and (at != begun + run or time != run_time):
                order.add(begun, run, run_time)
                run = 0
            if at < 0:
                at = pel.insert(ms, seq, cid, time, count)
            else:
                self._leave(at)
                pel.change(at, cid, time, count)
            consumer.pending += 1
            if not run:
                begun, run_time = at, time
            run += 1
        if run:
            order.add(begun, run, run_time)
        self.facts.owned(self.gid, cid, seen_time, active_time, records)

    def release(self, records: array[int]) -> None:
        """Remove the owner of each ``(ms, seq, count)`` and append the entry to ``released``."""
        for base in range(0, len(records), 3):
            ms, seq = word_at(records, base), word_at(records, base + 1)
            self._disown(ms, seq, 0, word_at(records, base + 2))
            self.released[ms, seq] = None
        self.book()
        self.facts.released(self.gid, records)
        self.stream.db.signal(self.stream.key)

    def delay(self, records: array[int]) -> None:
        """Remove the owner of each ``(ms, seq, due, count)`` and delay the entry until its due time."""
        before = self.next_due()
        for base in range(0, len(records), 4):
            ms, seq = word_at(records, base), word_at(records, base + 1)
            due = word_at(records, base + 2)
            self._disown(ms, seq, due, word_at(records, base + 3))
            self.delayed[ms, seq] = due
            insort(self.due_order, (due, ms, seq))
        self.book()
        self.facts.delayed(self.gid, records)
        self.keyspace.delaying[self.gid] = self
        if self.due_order[0][0] != before:
            self.keyspace.note_due(self.due_order[0][0], self.gid)

    def end_delay(self, ids: array[int]) -> None:
        """Move these delayed entries, which are due, to the end of ``released``, in this order."""
        ended = len(ids) // 2
        assert flat_words([one[1:] for one in self.due_order[:ended]]) == ids, "not the next due"
        del self.due_order[:ended]
        for base in range(0, 2 * ended, 2):
            entry_id = (word_at(ids, base), word_at(ids, base + 1))
            at = self.pel.find(entry_id[0], entry_id[1])
            self.pel.change(at, NOBODY, 0, self.pel.delivery_count(at))
            del self.delayed[entry_id]
            self.released[entry_id] = None
        self.book()
        if self.due_order:
            self.keyspace.note_due(self.due_order[0][0], self.gid)
        else:
            del self.keyspace.delaying[self.gid]
        self.facts.came_due(self.gid, ids)
        self.stream.db.signal(self.stream.key)

    # --- parts ----------------------------------------------------------------------------------

    def enter(self) -> None:
        """Register the group with the keyspace."""
        self.book()
        keyspace = self.keyspace
        keyspace.groups[self.gid] = self
        keyspace.next_gid = max(keyspace.next_gid, self.gid + 1)

    def book(self) -> None:
        """Account for the names, the consumers and the entries without an owner. The pending list books itself."""
        size = self.names_bytes + CONSUMER_BYTES * len(self.by_cid)
        size += RELEASED_BYTES * len(self.released) + DELAYED_BYTES * len(self.delayed)
        self.keyspace.memory.groups += size - self.booked
        self.booked = size

    def leave(self) -> None:
        """Remove the group from the keyspace."""
        keyspace = self.keyspace
        del keyspace.groups[self.gid]
        keyspace.delaying.pop(self.gid, None)
        keyspace.unseen.pop(self.gid, None)
        keyspace.discard(self, len(self.pel) + len(self.by_cid))

    def mark_gone(self, ids: Sequence[tuple[int, int]]) -> None:
        """Mark pending entries that were deleted from the stream. Part of `StoredStream.delete`."""
        if self.pel.length:
            for ms, seq in ids:
                self.pel.mark_gone(ms, seq)

    def _seen(self, consumer: GroupConsumer, seen_time: int, active_time: int) -> None:
        consumer.seen_time, consumer.active_time = seen_time, active_time
        if self.keyspace.unseen:
            self.keyspace.forget_seen(self.gid, consumer.cid)

    def _add(
        self, consumer: GroupConsumer, ids: array[int], first: int, end: int, time: int
    ) -> None:
        """Make entries ``first`` to ``end``-1 of a block pending, those above all pending ids in one step."""
        pel = self.pel
        while first < end:
            ms, seq = word_at(ids, 2 * first), word_at(ids, 2 * first + 1)
            count = 1
            if pel.ends_before(ms, seq):
                count = end - first
                at = pel.append(ids, first, end, time, consumer.cid)
            else:
                at = pel.find(ms, seq)
                if at < 0:
                    at = pel.insert(ms, seq, consumer.cid, time, 1)
                else:
                    self._leave(at)
                    pel.change(at, consumer.cid, time, 1)
            consumer.pending += count
            self.order.add(at, count, time)
            first += count

    def _disown(self, ms: int, seq: int, time: int, count: int) -> None:
        """Remove the owner of a record and set its time and count. Creates the record if it does not exist."""
        at = self.pel.find(ms, seq)
        if at < 0:
            self.pel.insert(ms, seq, NOBODY, time, count)
        else:
            self._leave(at)
            self.pel.change(at, NOBODY, time, count)

    def _leave_run(self, at: int, count: int) -> None:
        """Remove ``count`` records of one block from their owners, from ``released`` or from ``delayed``."""
        pel, end = self.pel, at + count
        while at < end:
            owner, same = pel.owner(at), pel.same_owner(at, end - at)
            if owner:
                consumer = self.by_cid[owner]
                consumer.pending -= same
            else:
                for one in range(at, at + same):
                    self._leave_unowned(pel.id(one))
            at += same

    def _leave(self, at: int) -> None:
        self._leave_run(at, 1)

    def _leave_unowned(self, entry_id: tuple[int, int]) -> None:
        if entry_id in self.released:
            del self.released[entry_id]
            self.book()
            return
        due = self.delayed.pop(entry_id)
        place = bisect_left(self.due_order, (due, *entry_id))
        del self.due_order[place]
        self.book()
        if not self.due_order:
            self.keyspace.delaying.pop(self.gid, None)
        elif place == 0 and self.due_order[0][0] != due:
            self.keyspace.note_due(self.due_order[0][0], self.gid)
