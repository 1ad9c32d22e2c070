"""Reads of XREADGROUP from one stream: new and idle entries of the group, or a consumer's pending entries.

A read is planned first (`GroupRead.plan`). After the command is admitted, it is carried out (`GroupRead.give`).
"""

from __future__ import annotations

from array import array
from typing import Any

from headwater.commands.call import Call, new_number
from headwater.commands.xread import NewEntries, ReadLimits, Share, entries_after
from headwater.common.limits import MAX_DELIVERY_COUNT, SHORTEST_RECHECK_MS
from headwater.common.model import MAX_I64, id_after
from headwater.engine.bodies.sealed_block import SealedBlock
from headwater.engine.entries.entry_block import Span
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.groups.consumer import GroupConsumer
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.keyspace.events import STREAM
from headwater.resp.replies import ReplyWriter

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import new_words, push_id, push_word, word_at

_NONE = array("Q")
"""An empty array of claims, to which nothing is ever added."""

_NOTHING: list[Any] = []
"""An empty list of entries or blocks, to which nothing is ever added."""

RECORD_BYTES = 32
"""Size of a record of the fact `owned`, in bytes."""

_ENTRY_HEADER = len(b"*2\r\n")

_NO_AGE_BYTES = len(b":0\r\n:0\r\n")
"""Number of bytes that CLAIM adds to the reply for a new entry: idle time and delivery count."""


class GroupRead:
    """The read of one stream by an XREADGROUP; base class of `GroupDelivery` and `History`.

    A consumer that does not exist is created once the command is admitted.
    """

    def begin(self, call: Call, key: bytes, group: ConsumerGroup, name: bytes) -> None:
        """Set the reader: the consumer ``name`` of ``group``, a group of the stream at ``key``."""
        self.call = call
        self.key = key
        self.group = group
        self.name = name
        self.consumer = group.consumers.get(name)
        self.missed: list[SealedBlock] = _NOTHING
        """Blocks on disk that the plan needs in addition to those of `spans`."""

    def plan(self, limits: ReadLimits) -> bool:
        """Choose the entries. Return whether the reply includes this stream."""
        raise NotImplementedError

    def fact_bytes(self) -> int:
        """Return an upper bound for the facts of the plan, in bytes."""
        raise NotImplementedError

    def most_fact_bytes(self, limits: ReadLimits) -> int:
        """Return an upper bound for the facts of a read that is not planned yet, in bytes."""
        raise NotImplementedError

    def give(self, reply: ReplyWriter) -> None:
        """Deliver the planned entries and write them to ``reply``."""
        raise NotImplementedError

    def spans(self) -> list[Span]:
        """Return the spans that `give` will read."""
        return []

    def forget(self) -> None:
        """Discard the plan, so that the read can be planned again."""
        raise NotImplementedError

    def recheck_at_ms(self) -> int | None:
        """Return the steady time at which a waiting read must run again without a signal; None means never."""
        return None

    def consumer_bytes(self) -> int:
        """Return an upper bound for the facts of `ensure_consumer`, in bytes."""
        return HEADROOM + len(self.name) if self.consumer is None else 0

    def pending_after(self) -> int:
        """Return an upper bound for the number of the group's pending entries after earlier reads of this stream by the
        same command."""
        return self.group.pel.length + self.group.stream.length

    def ensure_consumer(self) -> GroupConsumer:
        """Return the consumer. Create it if it does not exist."""
        if self.consumer is None:
            self.consumer = ensure_consumer(self.call, self.group, self.name)
        return self.consumer

    def mark_seen(self) -> None:
        """Set the consumer's seen time, for a command that records no other fact about the consumer."""
        self.group.see(self.ensure_consumer(), self.call.now_ms)


def ensure_consumer(call: Call, group: ConsumerGroup, name: bytes) -> GroupConsumer:
    """Return the consumer ``name`` of ``group``. Create it if it does not exist."""
    consumer = group.consumers.get(name)
    if consumer is None:
        consumer = group.create_consumer(name, new_number(group.next_cid), call.now_ms)
        call.keyspace.dirty += 1
        call.notify(STREAM, b"xgroup-createconsumer", group.stream.key)
    return consumer


class GroupDelivery(GroupRead):
    """A read of ``>``: with CLAIM (``claim_ms`` ≥ 0) first idle entries, then new ones."""

    def __init__(self) -> None:
        self.noack = False
        self.claim_ms = -1
        self.claims = _NONE
        """Four words for each entry that CLAIM takes over: ms, seq, and the idle time and delivery count before the
        claim."""
        self.wires: list[bytes] = _NOTHING
        """The claimed entries, encoded for the reply."""
        self.entries: NewEntries | None = None
        """The new entries to deliver; None if no entry is new or the reply is full."""
        self.new = 0
        """The number of new entries."""

    def plan(self, limits: ReadLimits) -> bool:
        share = limits.share(self.key)
        if self.claim_ms >= 0 and self.group.pel.length:
            self._claim(share)
        if not share.full():
            entries = entries_after(self.group.stream, self.group.last_id, share.left())
            if entries.total:
                entries = entries.within(share, _NO_AGE_BYTES if self.claim_ms >= 0 else 0)
                self.entries, self.new = entries, entries.total
        share.close()
        return len(self.wires) + self.new > 0

    def spans(self) -> list[Span]:
        return [] if self.entries is None else self.entries.spans

    def forget(self) -> None:
        self.claims, self.wires, self.missed = _NONE, _NOTHING, _NOTHING
        self.entries, self.new = None, 0

    def fact_bytes(self) -> int:
        size = self.consumer_bytes()
        if self.wires:
            size += HEADROOM + len(self.wires) * RECORD_BYTES
        return size + HEADROOM if self.new else size

    def most_fact_bytes(self, limits: ReadLimits) -> int:
        claims = 0
        if self.claim_ms >= 0:
            claims, most = self.pending_after(), limits.most()
            claims = claims if most < 0 else min(most, claims)
        return self.consumer_bytes() + 2 * HEADROOM + claims * RECORD_BYTES

    def _claim(self, share: Share) -> None:
        """Claim released entries in the order of their release, then owned entries that are idle enough, longest
        idle first.

        An entry that the stream no longer has is skipped and stays pending.
        """
        group = self.group
        self.claims, self.wires, self.missed = new_words(_NONE, 0), [], []
        for entry_id in group.released:
            if not self._take(group.pel.find(entry_id[0], entry_id[1]), share):
                return
        walk = group.order.begin()
        at = walk.next()
        while at >= 0 and self._take(at, share):
            at = walk.next()

    def _take(self, at: int, share: Share) -> bool:
        """Claim the record at ``at``. Return False if neither this nor any later record may be claimed."""
        pel, claims = self.group.pel, self.claims
        idle = self.call.now_ms - pel.time(at)
        if idle < self.claim_ms or share.full():
            return False
        ms, seq, deliveries = pel.ms(at), pel.seq(at), pel.delivery_count(at)
        wire = self.group.stream.log.gather(ms, seq, self.missed)
        if wire is not None:
            self.wires.append(wire)
            push_id(claims, ms, seq)
            push_word(claims, idle)
            push_word(claims, deliveries)
            size = 0
            if share.maxsize >= 0:
                size = len(wire) + len(b":%d\r\n:%d\r\n" % (idle, deliveries))
            share.add(size)
        return True

    def give(self, reply: ReplyWriter) -> None:
        group, now_ms = self.group, self.call.now_ms
        consumer = self.ensure_consumer()
        if self.wires:
            group.own(consumer, self._claimed_records(), now_ms, now_ms)
        entries = self.entries
        if entries is not None:
            read = group.entries_read_after(entries.spans, self.new)
            group.deliver_spans(consumer, now_ms, entries.spans, self.new, read, self.noack)
        self.call.keyspace.dirty += 1
        if self.claim_ms < 0:
            assert entries is not None, "give() is called only if plan() returned True"
            entries.write(reply)
            return
        reply.array(len(self.wires) + self.new)
        for number, wire in enumerate(self.wires):
            reply.array(4)
            reply.raw(wire[_ENTRY_HEADER:])
            reply.integer(word_at(self.claims, 4 * number + 2))
            reply.integer(word_at(self.claims, 4 * number + 3))
        if entries is not None:
            entries.write_four(reply)

    def _claimed_records(self) -> array[int]:
        """Return the claims in the form of records for `ConsumerGroup.own`."""
        records = new_words(_NONE, 0)
        for base in range(0, 4 * len(self.wires), 4):
            push_id(records, word_at(self.claims, base), word_at(self.claims, base + 1))
            push_word(records, self.call.now_ms)
            push_word(records, counted_once_more(word_at(self.claims, base + 3)))
        return records

    def recheck_at_ms(self) -> int | None:
        """Return the steady time at which the longest idle entry that the stream still has will be idle enough.
        Without such an entry, return now plus the min-idle-time or, if longer, `SHORTEST_RECHECK_MS`."""
        if self.claim_ms < 0:
            return None
        pel, log = self.group.pel, self.group.stream.log
        for entry_id in self.group.released:
            if log.contains(entry_id[0], entry_id[1]):
                return self.claim_ms
        walk = self.group.order.begin()
        at = walk.next()
        while at >= 0:
            if log.contains(pel.ms(at), pel.seq(at)):
                return min(pel.time(at) + self.claim_ms, MAX_I64)  # RESTORE accepts any time
            at = walk.next()
        return self.call.now_ms + max(self.claim_ms, SHORTEST_RECHECK_MS)


def counted_once_more(deliveries: int) -> int:
    """Return the delivery count after one more delivery."""
    return deliveries + 1 if deliveries < MAX_DELIVERY_COUNT else MAX_DELIVERY_COUNT


def _gone_size(entry_id: tuple[int, int]) -> int:
    """Return the size of a pending entry that the stream no longer has in a RESP2 reply: its id and a nil array."""
    text = b"%d-%d" % entry_id
    return len(b"*2\r\n$%d\r\n%b\r\n*-1\r\n" % (len(text), text))


class History(GroupRead):
    """A read after an id instead of ``>``: the consumer's own pending entries. This read never waits. Unless the
    reply is full, the stream is in the reply, even without entries."""

    def __init__(self) -> None:
        self.after = (0, 0)
        self.ids = array("Q")
        """The ids of the entries, two words each."""
        self.wires: list[bytes | None] = []
        """The entries, encoded for the reply; None for an entry that the stream no longer has."""
        self.records = array("Q")
        """Records for `ConsumerGroup.own`: the entries that the stream still has, with one more delivery."""

    def plan(self, limits: ReadLimits) -> bool:
        """Choose the entries. Returns False only if the reply is already full."""
        share = limits.share(self.key)
        if share.full():
            return False
        if self.consumer is not None:
            self._find(self.consumer, share)
        share.close()
        return True

    def _find(self, consumer: GroupConsumer, share: Share) -> None:
        self.missed = []
        pel, cid, left = self.group.pel, consumer.cid, consumer.pending
        after = id_after(self.after[0], self.after[1])
        at = pel.owned_from(pel.seek(after[0], after[1]), cid) if left else -1
        while at >= 0 and not share.full():
            ms, seq = pel.ms(at), pel.seq(at)
            push_id(self.ids, ms, seq)
            wire = self.group.stream.log.gather(ms, seq, self.missed)
            self.wires.append(wire)
            if wire is None:
                share.add(_gone_size((ms, seq)))
            else:
                share.add(len(wire))
                push_id(self.records, ms, seq)
                push_word(self.records, self.call.now_ms)
                push_word(self.records, counted_once_more(pel.delivery_count(at)))
            left -= 1
            at = pel.owned_from(pel.after(at), cid) if left else -1

    def forget(self) -> None:
        self.ids, self.records = array("Q"), array("Q")
        self.wires, self.missed = [], _NOTHING

    def fact_bytes(self) -> int:
        size = len(self.records) * self.records.itemsize
        return self.consumer_bytes() + (HEADROOM + size if size else 0)

    def most_fact_bytes(self, limits: ReadLimits) -> int:
        found, most = self.pending_after(), limits.most()
        found = found if most < 0 else min(most, found)
        return self.consumer_bytes() + HEADROOM + found * RECORD_BYTES

    def give(self, reply: ReplyWriter) -> None:
        """Count one more delivery of the entries that the stream still has, and write all entries."""
        consumer = self.ensure_consumer()
        if len(self.records):
            self.group.own(consumer, self.records, self.call.now_ms, consumer.active_time)
        else:
            self.mark_seen()
        reply.array(len(self.wires))
        for number, wire in enumerate(self.wires):
            if wire is not None:
                reply.raw(wire)
            else:
                reply.array(2)
                reply.id(word_at(self.ids, 2 * number), word_at(self.ids, 2 * number + 1))
                reply.nil_array()
