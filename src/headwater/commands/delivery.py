"""What one stream gives to one read: entries after an id, a group's new and idle entries, or a
consumer's history. Each is planned first and then given; `reading` holds them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headwater.commands.call import Call
from headwater.commands.ids import GREATEST
from headwater.engine.entry_log import Span
from headwater.engine.facts import HEADROOM
from headwater.engine.group import Consumer, ConsumerGroup
from headwater.engine.stream import Stream
from headwater.limits import MAX_DELIVERY_COUNT, SHORTEST_RECHECK_MS
from headwater.model import id_after
from headwater.resp.replies import ReplyWriter

RECORD_BYTES = 32
"""A record of the fact `owned`."""

_ENTRY_HEADER = len(b"*2\r\n")


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

    def pending_at_most(self, *, repeated: bool) -> int:
        """How many entries are pending when this read is given; one of the same stream before it in
        the same command (``repeated``) may deliver what is there."""
        pending = len(self.group.pel)
        return pending + self.group.stream.length if repeated else pending

    def meet_consumer(self) -> None:
        """Make the consumer if it is not there, and note that it was seen."""
        consumer = meet_consumer(self.group, self.name, self.call.now_ms)
        self.group.see(consumer, self.call.now_ms)


def meet_consumer(group: ConsumerGroup, name: bytes, now_ms: int) -> Consumer:
    """The consumer of that name, made if it is not there."""
    consumer = group.consumers.get(name)
    if consumer is None:
        consumer = group.create_consumer(name, group.next_cid, now_ms)
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

    def fact_bytes(self, count: int, *, repeated: bool) -> int:
        claims = self.pending_at_most(repeated=repeated) if self.claim_ms >= 0 else 0
        if count >= 0:
            claims = min(count, claims)
        return 3 * HEADROOM + len(self.name) + claims * RECORD_BYTES

    def plan(self, count: int) -> bool:
        """Settle what is given, at most ``count`` (-1: all); whether that is anything."""
        self.claims = list(self._claimable(count)) if self.claim_ms >= 0 else []
        rest = count if count < 0 else count - len(self.claims)
        if rest:
            self.entries = NewEntries.after(self.group.stream, self.group.last_id, rest)
        return bool(self.claims or self.entries.total)

    def _claimable(self, count: int) -> Iterator[Claimed]:
        """The released in order of release, then the owned by age, while they are idle enough.

        An entry that is gone from the stream is passed over and stays pending.
        """
        group, now_ms = self.group, self.call.now_ms
        taken = 0
        for at in self._candidates():
            idle = now_ms - group.pel.time(at)
            if idle < self.claim_ms or taken == count:
                return
            entry_id = group.pel.id(at)
            wire = group.stream.log.get(*entry_id)
            if wire is not None:
                taken += 1
                yield Claimed(entry_id, wire, idle, group.pel.delivery_count(at))

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
        self.call.keyspace.dirty += len(self.claims) + self.entries.total
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


class History(GroupRead):
    """The consumer's own pending entries past an id; always shown, never blocks."""

    def __init__(
        self, call: Call, key: bytes, group: ConsumerGroup, name: bytes, after: tuple[int, int]
    ) -> None:
        super().__init__(call, key, group, name)
        self.after = after
        self.found: list[tuple[tuple[int, int], bytes | None, int]] = []

    def fact_bytes(self, count: int, *, repeated: bool) -> int:
        consumer = self.group.consumers.get(self.name)
        most = 0 if consumer is None else consumer.pending
        if repeated:
            most = self.pending_at_most(repeated=True)
        if count >= 0:
            most = min(count, most)
        return 2 * HEADROOM + len(self.name) + most * RECORD_BYTES

    def plan(self, count: int) -> bool:
        """Settle what is given: id, bytes (None if the entry is gone), delivery count."""
        pel, cid = self.group.pel, self.consumer.cid
        left = self.consumer.pending
        at = pel.seek(*id_after(*self.after)) if left else -1
        self.found = []
        while at >= 0 and left and len(self.found) != count:
            if pel.owner(at) == cid:
                entry_id = pel.id(at)
                wire = self.group.stream.log.get(*entry_id)
                self.found.append((entry_id, wire, pel.delivery_count(at)))
                left -= 1
            at = pel.after(at)
        return True

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
