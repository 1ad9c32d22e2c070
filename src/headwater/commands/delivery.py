"""What one stream gives to one read: entries after an id, a group's new and idle entries, or a
consumer's history. Each is planned first and then given; `reading` holds them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headwater.commands.call import Call
from headwater.commands.events import STREAM
from headwater.commands.ids import GREATEST
from headwater.commands.read_limits import ReadLimits, Share
from headwater.engine.entry_log import Span
from headwater.engine.facts import HEADROOM
from headwater.engine.group import Consumer, ConsumerGroup
from headwater.engine.pending import NOWHERE
from headwater.engine.stream import Stream
from headwater.limits import MAX_DELIVERY_COUNT, SHORTEST_RECHECK_MS
from headwater.model import id_after
from headwater.resp.replies import ReplyWriter

RECORD_BYTES = 32
"""A record of the fact `owned`."""

_ENTRY_HEADER = len(b"*2\r\n")

_NO_AGE_BYTES = len(b":0\r\n:0\r\n")
"""What CLAIM shows more of a new entry: its idle time and count."""


class NewEntries:
    """Neighbouring live entries of a stream."""

    def __init__(self, spans: list[Span], total: int) -> None:
        self.spans = spans
        self.total = total

    @classmethod
    def after(cls, stream: Stream, last_seen: tuple[int, int], count: int) -> NewEntries:
        """Entries past ``last_seen``, at most ``count`` (-1: all)."""
        if last_seen >= stream.last_id:
            return cls([], 0)
        return cls(*stream.log.spans(id_after(*last_seen), GREATEST, count))

    @classmethod
    def newest(cls, stream: Stream) -> NewEntries:
        """The last live entry; the stream has one."""
        last = stream.log.last()
        return cls(*stream.log.spans(last, last))

    def within(self, share: Share, more: int = 0) -> NewEntries:
        """As many of them as there is a share for, each ``more`` bytes longer in the reply."""
        if share.maxsize < 0 and not 0 <= share.left() < self.total:
            share.taken += self.total
            return self
        spans: list[Span] = []
        before = share.taken
        for span in self.spans:
            end, block = span.first, span.block
            while end < span.end and not share.full():
                share.add(block.start(end + 1) - block.offsets[end] + more)
                end += 1
            if end > span.first:
                spans.append(Span(block, span.first, end))
        return NewEntries(spans, share.taken - before)

    def ids(self) -> Iterator[tuple[int, int]]:
        for span in self.spans:
            yield from span.ids()

    def first_and_last(self) -> tuple[tuple[int, int], tuple[int, int]]:
        first, last = self.spans[0], self.spans[-1]
        return first.ids()[0], last.ids()[-1]

    def write(self, reply: ReplyWriter) -> None:
        reply.array(self.total)
        for span in self.spans:
            reply.raw(span.wire())

    def write_four(self, reply: ReplyWriter) -> None:
        """The entries as XREADGROUP CLAIM shows new ones, ``[id, fields, 0, 0]``, without header."""
        for span in self.spans:
            for index in range(span.first, span.end):
                _write_four(reply, Span(span.block, index, index + 1).wire(), 0, 0)


def _write_four(reply: ReplyWriter, wire: bytes | bytearray, idle_ms: int, count: int) -> None:
    reply.array(4)
    reply.raw(wire[_ENTRY_HEADER:])
    reply.integer(idle_ms)
    reply.integer(count)


class Claimed(NamedTuple):
    """One idle or released entry that CLAIM takes; idle time and deliveries are as before the claim."""

    id: tuple[int, int]
    wire: bytes
    idle_ms: int
    deliveries: int

    def size(self) -> int:
        """Bytes in the reply."""
        return len(self.wire) + len(b":%d\r\n:%d\r\n" % (self.idle_ms, self.deliveries))


class GroupRead:
    """What `Delivery` and `History` share: the consumer, made when the command is admitted."""

    def __init__(self, call: Call, key: bytes, group: ConsumerGroup, name: bytes) -> None:
        self.call = call
        self.key = key
        self.group = group
        self.name = name

    @property
    def consumer(self) -> Consumer:
        return self.group.consumers[self.name]

    def consumer_bytes(self) -> int:
        """An upper bound for the facts of `meet_consumer`."""
        return 0 if self.name in self.group.consumers else HEADROOM + len(self.name)

    def pending_after(self) -> int:
        """How many entries are pending at most, once reads of the same stream before this one in the
        same command have delivered what is there."""
        return len(self.group.pel) + self.group.stream.length

    def meet_consumer(self) -> None:
        """Make the consumer if it is not there, and note that it was seen."""
        consumer = meet_consumer(self.call, self.group, self.name)
        self.group.see(consumer, self.call.now_ms)


def meet_consumer(call: Call, group: ConsumerGroup, name: bytes) -> Consumer:
    """The consumer of that name, made if it is not there."""
    consumer = group.consumers.get(name)
    if consumer is None:
        consumer = group.create_consumer(name, group.next_cid, call.now_ms)
        call.keyspace.dirty += 1
        call.notify(STREAM, b"xgroup-createconsumer", group.stream.key)
    return consumer


class Delivery(GroupRead):
    """``>``: idle entries first when CLAIM is given (``claim_ms`` ≥ 0), then new ones."""

    def __init__(
        self,
        call: Call,
        key: bytes,
        group: ConsumerGroup,
        name: bytes,
        noack: bool,
        claim_ms: int,
    ) -> None:
        super().__init__(call, key, group, name)
        self.noack = noack
        self.claim_ms = claim_ms
        self.claims: list[Claimed] = []
        self.entries = NewEntries([], 0)

    def plan(self, limits: ReadLimits) -> bool:
        """Settle what is given; whether that is anything."""
        share = Share(limits, self.key)
        if self.claim_ms >= 0:
            self.claims = list(self._claimable(share))
        if not share.full():
            entries = NewEntries.after(self.group.stream, self.group.last_id, share.left())
            self.entries = entries.within(share, _NO_AGE_BYTES if self.claim_ms >= 0 else 0)
        share.close()
        return bool(self.claims or self.entries.total)

    def fact_bytes(self) -> int:
        """An upper bound for the facts of what was planned."""
        size = self.consumer_bytes()
        if self.claims:
            size += HEADROOM + len(self.claims) * RECORD_BYTES
        return size + HEADROOM if self.entries.total else size

    def most_fact_bytes(self, limits: ReadLimits) -> int:
        """An upper bound where nothing can be planned yet."""
        claims = 0
        if self.claim_ms >= 0:
            claims, most = self.pending_after(), limits.most()
            claims = claims if most < 0 else min(most, claims)
        return self.consumer_bytes() + 2 * HEADROOM + claims * RECORD_BYTES

    def _claimable(self, share: Share) -> Iterator[Claimed]:
        """The released in order of release, then the owned by age, while they are idle enough.

        An entry that is gone from the stream is passed over and stays pending.
        """
        group, now_ms = self.group, self.call.now_ms
        for at in self._candidates():
            idle = now_ms - group.pel.time(at)
            if idle < self.claim_ms or share.full():
                return
            entry_id = group.pel.id(at)
            wire = group.stream.log.get(*entry_id)
            if wire is not None:
                claimed = Claimed(entry_id, wire, idle, group.pel.delivery_count(at))
                share.add(claimed.size() if share.maxsize >= 0 else 0)
                yield claimed

    def _candidates(self) -> Iterator[int]:
        for entry_id in self.group.released:
            yield self.group.pel.find(*entry_id)
        yield from self.group.order.walk()

    def give(self, reply: ReplyWriter) -> None:
        """Claim, deliver, write."""
        group, now_ms = self.group, self.call.now_ms
        if self.claims:
            records = [
                (*claim.id, now_ms, min(claim.deliveries + 1, MAX_DELIVERY_COUNT))
                for claim in self.claims
            ]
            group.own(self.consumer, records, now_ms, now_ms)
        if self.entries.total:
            first, last = self.entries.first_and_last()
            read = group.entries_read_after(self.entries.ids(), self.entries.total)
            group.deliver(
                self.consumer, now_ms, first, last, self.entries.total, read, noack=self.noack
            )
        self.call.keyspace.dirty += 1
        if self.claim_ms < 0:
            self.entries.write(reply)
            return
        reply.array(len(self.claims) + self.entries.total)
        for claim in self.claims:
            _write_four(reply, claim.wire, claim.idle_ms, claim.deliveries)
        self.entries.write_four(reply)

    def recheck_at_ms(self) -> int | None:
        """When the oldest pending entry that still exists will be idle enough; without one, a
        min-idle-time from now, but no more often than makes sense."""
        if self.claim_ms < 0:
            return None
        pel, log = self.group.pel, self.group.stream.log
        for at in self._candidates():
            if log.contains(*pel.id(at)):
                return pel.time(at) + self.claim_ms
        return self.call.now_ms + max(self.claim_ms, SHORTEST_RECHECK_MS)


def _gone_size(entry_id: tuple[int, int]) -> int:
    """Bytes of a pending entry that is gone from the stream, in RESP2: its id and a nil array."""
    text = b"%d-%d" % entry_id
    return len(b"*2\r\n$%d\r\n%b\r\n*-1\r\n" % (len(text), text))


class History(GroupRead):
    """The consumer's own pending entries past an id; always shown, never blocks."""

    def __init__(
        self, call: Call, key: bytes, group: ConsumerGroup, name: bytes, after: tuple[int, int]
    ) -> None:
        super().__init__(call, key, group, name)
        self.after = after
        self.found: list[tuple[tuple[int, int], bytes | None, int]] = []

    def plan(self, limits: ReadLimits) -> bool:
        """Settle what is given: id, bytes (None if the entry is gone), delivery count. False only
        when the reply is full already."""
        share, pel = Share(limits, self.key), self.group.pel
        if share.full():
            return False
        consumer = self.group.consumers.get(self.name)
        left = 0 if consumer is None else consumer.pending
        at = pel.seek(*id_after(*self.after)) if left else NOWHERE
        while consumer is not None and left and not share.full():
            at = pel.owned_from(at, consumer.cid)
            if at == NOWHERE:
                break
            entry_id = pel.id(at)
            wire = self.group.stream.log.get(*entry_id)
            self.found.append((entry_id, wire, pel.delivery_count(at)))
            share.add(_gone_size(entry_id) if wire is None else len(wire))
            left -= 1
            at = pel.after(at)
        share.close()
        return True

    def fact_bytes(self) -> int:
        """An upper bound for the facts of what was planned."""
        there = sum(wire is not None for _, wire, _ in self.found)
        return self.consumer_bytes() + (HEADROOM + there * RECORD_BYTES if there else 0)

    def most_fact_bytes(self, limits: ReadLimits) -> int:
        """An upper bound where nothing can be planned yet."""
        found, most = self.pending_after(), limits.most()
        found = found if most < 0 else min(most, found)
        return self.consumer_bytes() + HEADROOM + found * RECORD_BYTES

    def give(self, reply: ReplyWriter) -> None:
        """Count the delivery of what still exists, write."""
        now_ms = self.call.now_ms
        records = [
            (*entry_id, now_ms, min(count + 1, MAX_DELIVERY_COUNT))
            for entry_id, wire, count in self.found
            if wire is not None
        ]
        if records:
            self.group.own(self.consumer, records, now_ms, self.consumer.active_time)
        reply.array(len(self.found))
        for entry_id, wire, _ in self.found:
            if wire is not None:
                reply.raw(wire)
            else:
                reply.array(2)
                reply.id(*entry_id)
                reply.nil_array()

    def recheck_at_ms(self) -> int | None:
        return None
