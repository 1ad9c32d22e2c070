"""What one stream gives to one read: entries after an id, a group's new and idle entries, or a
consumer's history. Each is planned first and then given; `reading` holds them together.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from headwater.commands.call import Call
from headwater.commands.ids import GREATEST
from headwater.commands.read_limits import ReadLimits, Share
from headwater.engine.entry_block import Span
from headwater.engine.events import STREAM
from headwater.engine.facts import HEADROOM
from headwater.engine.group import ConsumerGroup, GroupConsumer
from headwater.engine.stream import StoredStream
from headwater.limits import MAX_DELIVERY_COUNT, SHORTEST_RECHECK_MS
from headwater.model import MAX_U64, id_after
from headwater.resp.replies import ReplyWriter

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import append_fours, new_words, push_id, push_word, word_at

_NONE = array("Q")
"""No claims; nothing is ever added to it."""

RECORD_BYTES = 32
"""A record of the fact `owned`."""

_ENTRY_HEADER = len(b"*2\r\n")

_NO_AGE_BYTES = len(b":0\r\n:0\r\n")
"""What CLAIM shows more of a new entry: its idle time and count."""


class NewEntries:
    """Neighbouring live entries of a stream; from `entries_after`, `newest_entry`."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.total = 0

    def within(self, share: Share, more: int) -> NewEntries:
        """As many of them as there is a share for, each ``more`` bytes longer in the reply."""
        if share.maxsize < 0 and not 0 <= share.left() < self.total:
            share.taken += self.total
            return self
        spans: list[Span] = []
        before = share.taken
        for span in self.spans:
            end, block = span.first, span.block
            while end < span.end and not share.full():
                share.add(block.start(end + 1) - block.start(end) + more)
                end += 1
            if end > span.first:
                spans.append(Span(block, span.first, end))
        made = NewEntries()
        made.spans, made.total = spans, share.taken - before
        return made

    def write(self, reply: ReplyWriter) -> None:
        reply.array(self.total)
        for span in self.spans:
            reply.part(span.data(), span.start(), span.stop())

    def write_four(self, reply: ReplyWriter) -> None:
        """The entries as XREADGROUP CLAIM shows new ones, ``[id, fields, 0, 0]``, without header."""
        for span in self.spans:
            block = span.block
            data, edges = block.entries(), block.edges()
            append_fours(reply.out, data, edges, span.first, span.end, span.stop())


def entries_after(stream: StoredStream, last_seen: tuple[int, int], count: int) -> NewEntries:
    """Entries past ``last_seen``, at most ``count`` (-1: all)."""
    made = NewEntries()
    ms, seq = last_seen[0], last_seen[1]
    if ms < stream.last_ms or (ms == stream.last_ms and seq < stream.last_seq):
        if seq < MAX_U64:
            seq += 1
        else:
            ms, seq = ms + 1, 0
        made.spans, made.total = stream.log.spans((ms, seq), GREATEST, count)
    return made


def newest_entry(stream: StoredStream) -> NewEntries:
    """The last live entry; the stream has one."""
    made, last = NewEntries(), stream.log.last()
    made.spans, made.total = stream.log.spans(last, last)
    return made


class GroupRead:
    """What `GroupDelivery` and `History` share: the consumer, made when the command is admitted."""

    def of(self, call: Call, key: bytes, group: ConsumerGroup, name: bytes) -> None:
        """Be a read of this consumer of ``group``, which is one of the stream at ``key``."""
        self.call = call
        self.key = key
        self.group = group
        self.name = name
        self.consumer = group.consumers.get(name)

    def plan(self, limits: ReadLimits) -> bool:
        """Settle what is given; whether anything is shown."""
        raise NotImplementedError

    def fact_bytes(self) -> int:
        """An upper bound for the facts of what was planned."""
        raise NotImplementedError

    def most_fact_bytes(self, limits: ReadLimits) -> int:
        """An upper bound where nothing can be planned yet."""
        raise NotImplementedError

    def give(self, reply: ReplyWriter) -> None:
        """Do what was planned, and write it."""
        raise NotImplementedError

    def recheck_at_ms(self) -> int | None:
        """When a read that waits has to look again although nothing has happened."""
        return None

    def consumer_bytes(self) -> int:
        """An upper bound for the facts of `meet_consumer`."""
        return HEADROOM + len(self.name) if self.consumer is None else 0

    def pending_after(self) -> int:
        """How many entries are pending at most, once reads of the same stream before this one in the
        same command have delivered what is there."""
        return self.group.pel.length + self.group.stream.length

    def meet_consumer(self) -> GroupConsumer:
        """The consumer, made if it is not there."""
        if self.consumer is None:
            self.consumer = meet_consumer(self.call, self.group, self.name)
        return self.consumer

    def see_consumer(self) -> None:
        """Note that the consumer was seen: it is there, and no fact of this command says so."""
        self.group.see(self.meet_consumer(), self.call.now_ms)


def meet_consumer(call: Call, group: ConsumerGroup, name: bytes) -> GroupConsumer:
    """The consumer of that name, made if it is not there."""
    consumer = group.consumers.get(name)
    if consumer is None:
        consumer = group.create_consumer(name, group.next_cid, call.now_ms)
        call.keyspace.dirty += 1
        call.notify(STREAM, b"xgroup-createconsumer", group.stream.key)
    return consumer


class GroupDelivery(GroupRead):
    """``>``: idle entries first when CLAIM is given (``claim_ms`` ≥ 0), then new ones."""

    def __init__(self) -> None:
        self.noack = False
        self.claim_ms = -1
        self.claims = _NONE
        """Four words for each idle or released entry that CLAIM takes: ms, seq, idle time and
        deliveries, as they were before the claim."""
        self.wires: list[bytes] = []
        """The entries that these are of."""
        self.entries: NewEntries | None = None
        """The new ones; None where there is none."""
        self.new = 0
        """How many these are."""

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
        """Take the released in order of release, then the owned by age, while they are idle enough.

        An entry that is gone from the stream is passed over and stays pending.
        """
        group = self.group
        self.claims = new_words(_NONE, 0)
        for entry_id in group.released:
            if not self._take(group.pel.find(entry_id[0], entry_id[1]), share):
                return
        walk = group.order.begin()
        at = walk.next()
        while at >= 0 and self._take(at, share):
            at = walk.next()

    def _take(self, at: int, share: Share) -> bool:
        """Claim one record; False when neither it nor any behind it may be claimed."""
        pel, claims = self.group.pel, self.claims
        idle = self.call.now_ms - pel.time(at)
        if idle < self.claim_ms or share.full():
            return False
        ms, seq, deliveries = pel.ms(at), pel.seq(at), pel.delivery_count(at)
        wire = self.group.stream.log.get(ms, seq)
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
        consumer = self.meet_consumer()
        if self.wires:
            group.own(consumer, self._claimed_records(), now_ms, now_ms)
        entries = self.entries
        if entries is not None:
            read = group.entries_read_after(entries.spans, self.new)
            group.deliver_spans(consumer, now_ms, entries.spans, self.new, read, self.noack)
        self.call.keyspace.dirty += 1
        if self.claim_ms < 0:
            assert entries is not None, "a read that gives nothing is not given"
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
        """The claims as `ConsumerGroup.own` takes them."""
        records = new_words(_NONE, 0)
        for base in range(0, 4 * len(self.wires), 4):
            push_id(records, word_at(self.claims, base), word_at(self.claims, base + 1))
            push_word(records, self.call.now_ms)
            push_word(records, counted_once_more(word_at(self.claims, base + 3)))
        return records

    def recheck_at_ms(self) -> int | None:
        """When the oldest pending entry that still exists will be idle enough; without one, a
        min-idle-time from now, but no more often than makes sense."""
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
                return pel.time(at) + self.claim_ms
            at = walk.next()
        return self.call.now_ms + max(self.claim_ms, SHORTEST_RECHECK_MS)


def counted_once_more(deliveries: int) -> int:
    """The delivery count of an entry that is given again."""
    return deliveries + 1 if deliveries < MAX_DELIVERY_COUNT else MAX_DELIVERY_COUNT


def _gone_size(entry_id: tuple[int, int]) -> int:
    """Bytes of a pending entry that is gone from the stream, in RESP2: its id and a nil array."""
    text = b"%d-%d" % entry_id
    return len(b"*2\r\n$%d\r\n%b\r\n*-1\r\n" % (len(text), text))


class History(GroupRead):
    """The consumer's own pending entries past an id; always shown, never blocks."""

    def __init__(self) -> None:
        self.after = (0, 0)
        self.ids = array("Q")
        """Of what is shown, two words each."""
        self.wires: list[bytes | None] = []
        """The entries, None for one that is gone."""
        self.records = array("Q")
        """What is delivered once more, as `ConsumerGroup.own` takes it: those that are there."""

    def plan(self, limits: ReadLimits) -> bool:
        """Settle what is given. False only when the reply is full already."""
        share = limits.share(self.key)
        if share.full():
            return False
        if self.consumer is not None:
            self._find(self.consumer, share)
        share.close()
        return True

    def _find(self, consumer: GroupConsumer, share: Share) -> None:
        pel, cid, left = self.group.pel, consumer.cid, consumer.pending
        after = id_after(self.after[0], self.after[1])
        at = pel.owned_from(pel.seek(after[0], after[1]), cid) if left else -1
        while at >= 0 and not share.full():
            ms, seq = pel.ms(at), pel.seq(at)
            push_id(self.ids, ms, seq)
            wire = self.group.stream.log.get(ms, seq)
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

    def fact_bytes(self) -> int:
        size = len(self.records) * self.records.itemsize
        return self.consumer_bytes() + (HEADROOM + size if size else 0)

    def most_fact_bytes(self, limits: ReadLimits) -> int:
        found, most = self.pending_after(), limits.most()
        found = found if most < 0 else min(most, found)
        return self.consumer_bytes() + HEADROOM + found * RECORD_BYTES

    def give(self, reply: ReplyWriter) -> None:
        """Count the delivery of what still exists, write."""
        consumer = self.meet_consumer()
        if len(self.records):
            self.group.own(consumer, self.records, self.call.now_ms, consumer.active_time)
        else:
            self.see_consumer()
        reply.array(len(self.wires))
        for number, wire in enumerate(self.wires):
            if wire is not None:
                reply.raw(wire)
            else:
                reply.array(2)
                reply.id(word_at(self.ids, 2 * number), word_at(self.ids, 2 * number + 1))
                reply.nil_array()
