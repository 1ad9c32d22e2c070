"""A stream as DUMP and RESTORE see it: from the engine to an image, and back by ordinary mutators.

Rule 1. Nodes of an image are Redis's nodes (engine/nodes.py). A restored stream has the nodes of its
        payload, with the first ids, counts and sizes that Redis would show.
Rule 2. What a restored stream refers to and does not have, pending entries that were trimmed or
        deleted, is known to it as gone (engine/stream.py, rule 4).
Rule 3. Owned entries are given their owners in the order of their delivery times, so that the order
        of deliveries grows at its end however they lie among each other.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.engine.facts import HEADROOM, ID_BYTES
from headwater.engine.group import ConsumerGroup
from headwater.engine.nodes import elements
from headwater.engine.pending import NOBODY, NOWHERE
from headwater.engine.stream import Stream
from headwater.memory import cut
from headwater.model import flat_words
from headwater.rdb.image import (
    ConsumerImage,
    EntryImage,
    GroupImage,
    IdempotencyImage,
    NodeImage,
    PendingImage,
    ProducerImage,
    StreamImage,
)

ID = tuple[int, int]

_RECORD_BYTES = 32
"""A pending entry in a fact (engine/facts.py, owned)."""


# --- from the engine ------------------------------------------------------------------------------


def image_of(stream: Stream) -> StreamImage:
    """All that ``stream`` is."""
    known = stream.idempotency
    return StreamImage(
        _nodes(stream),
        stream.last_id,
        stream.max_deleted_id,
        stream.entries_added,
        [_group(group) for group in stream.sorted_groups()],
        IdempotencyImage(
            known.duration_s,
            known.maxsize,
            [ProducerImage(pid, iids) for pid, iids in known.contents()],
            known.added,
            known.duplicates,
        ),
    )


def _nodes(stream: Stream) -> list[NodeImage]:
    """The nodes with their live entries. A node that was opened by an entry that is gone begins with
    what is known of it, its id and field names."""
    found: list[NodeImage] = []
    nodes, log = stream.nodes, stream.log
    for number in range(len(nodes)):
        first = nodes.first(number)
        entries: list[EntryImage] = []
        spans, _ = log.spans(first, nodes.last(number))
        for span in spans:
            block, data = span.block, span.data()
            for at, entry_id in enumerate(span.ids(), span.first):
                wire = cut(data, block.start(at), block.start(at + 1))
                entries.append(EntryImage(entry_id, tuple(elements(_fields(wire, entry_id)))))
        if not entries or entries[0].id != first:
            names = elements(nodes.names_of(number))
            opened = tuple(part for name in names for part in (name, b""))
            entries.insert(0, EntryImage(first, opened, live=False))
        found.append(NodeImage(first, entries))
    return found


def _fields(wire: bytes, entry_id: ID) -> bytes:
    """The part of an entry's reply behind its id and the number of its fields (entry_log.py)."""
    name = b"%d-%d" % entry_id
    header = len(b"*2\r\n$%d\r\n%b\r\n*" % (len(name), name))
    return wire[wire.index(b"\n", header) + 1 :]


def _group(group: ConsumerGroup) -> GroupImage:
    pel = group.pel
    pending: list[PendingImage] = []
    owned: dict[int, list[ID]] = {cid: [] for cid in group.by_cid}
    at = pel.seek(0, 0)
    while at != NOWHERE:
        entry_id, owner = pel.id(at), pel.owner(at)
        pending.append(PendingImage(entry_id, pel.time(at), pel.delivery_count(at)))
        if owner != NOBODY:
            owned[owner].append(entry_id)
        at = pel.after(at)
    return GroupImage(
        group.name,
        group.last_id,
        group.entries_read,
        pending,
        [
            ConsumerImage(one.name, one.seen_time, one.active_time, owned[one.cid])
            for one in group.sorted_consumers()
        ],
        [*group.released, *((ms, seq) for _, ms, seq in group.due_order)],
    )


# --- to the engine --------------------------------------------------------------------------------


class _Delivery:
    """Who owns a group's pending entries, in the order in which the engine is told."""

    def __init__(self, group: GroupImage) -> None:
        by_id = {pending.id: pending for pending in group.pending}
        owned = sorted(
            (by_id[entry_id].time, entry_id, number)
            for number, consumer in enumerate(group.consumers)
            for entry_id in consumer.pending
        )
        self.runs: list[tuple[int, list[tuple[int, int, int, int]]]] = []
        """(number of the consumer, records) of neighbours in that order."""
        for time, entry_id, number in owned:
            if not self.runs or self.runs[-1][0] != number:
                self.runs.append((number, []))
            self.runs[-1][1].append((*entry_id, time, by_id[entry_id].deliveries))
        unowned = [by_id[entry_id] for entry_id in group.released]
        self.released = [(*one.id, one.deliveries) for one in unowned if not one.time]
        self.delayed = [(*one.id, one.time, one.deliveries) for one in unowned if one.time]


class Restoration:
    """What has to be done for an image to become a stream: prepared, weighed, then done."""

    def __init__(self, image: StreamImage) -> None:
        self.image = image
        self.wires = [
            (entry.id, _wire(entry.elements), len(entry.elements) // 2, not number)
            for node in image.nodes
            for number, entry in enumerate(node.entries)
        ]
        entries = [entry for node in image.nodes for entry in node.entries]
        self.deleted = [entry.id for entry in entries if not entry.live]
        there = {entry.id for entry in entries if entry.live}
        self.gone = max(
            (one.id for group in image.groups for one in group.pending if one.id not in there),
            default=None,
        )
        self.deliveries = [_Delivery(group) for group in image.groups]

    def fact_bytes(self, key: bytes) -> int:
        """An upper bound for the facts of `apply`."""
        size = 5 * HEADROOM + 2 * len(key) + ID_BYTES * len(self.deleted)
        size += sum(HEADROOM + len(wire) for _, wire, _, _ in self.wires)
        for group, delivery in zip(self.image.groups, self.deliveries, strict=True):
            size += 3 * HEADROOM + len(group.name) + _RECORD_BYTES * len(group.pending)
            size += HEADROOM * len(delivery.runs)
            size += sum(2 * HEADROOM + len(consumer.name) for consumer in group.consumers)
        if self.image.idempotency is not None:
            for pid, iids in self.image.idempotency.producers:
                size += HEADROOM + len(pid) + sum(HEADROOM + len(iid) for iid, _ in iids)
        return size

    def apply(self, call: Call, key: bytes) -> None:
        """Make the stream at ``key``, over whatever is there; admitted before."""
        image = self.image
        stream = call.create_stream(key)
        if self.gone is not None:
            stream.trim_through(*self.gone)
        for entry_id, wire, pairs, opens in self.wires:
            stream.append(*entry_id, wire, pairs, opens)
        if self.deleted:
            stream.delete(self.deleted, marks=False)
        stream.set_id(image.last_id, image.entries_added, image.max_deleted_id)
        for group, delivery in zip(image.groups, self.deliveries, strict=True):
            _place_group(call, stream, group, delivery)
        known = image.idempotency
        if known is not None:
            producers = [(pid, iids) for pid, iids in known.producers]
            stream.idempotency.restore(
                known.duration_s, known.max_size, known.added, known.duplicates, producers
            )


def _wire(parts: tuple[bytes, ...]) -> bytes:
    return b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


def _place_group(call: Call, stream: Stream, image: GroupImage, delivery: _Delivery) -> None:
    read = image.entries_read
    if read is None:
        read = stream.entries_read_at(image.last_id)
    group = stream.create_group(image.name, call.keyspace.next_gid, *image.last_id, read)
    consumers = [
        group.create_consumer(one.name, group.next_cid, one.seen_time) for one in image.consumers
    ]
    for number, records in delivery.runs:
        one = image.consumers[number]
        group.own(consumers[number], flat_words(records), one.seen_time, one.active_time)
    for consumer, one in zip(consumers, image.consumers, strict=True):
        if consumer.active_time != one.active_time:
            group.record_seen(consumer, one.seen_time, one.active_time)
    if delivery.released:
        group.release(flat_words(delivery.released))
    if delivery.delayed:
        group.delay(flat_words(delivery.delayed))
