"""Streams for DUMP and RESTORE: makes an image from a snapshot, and a stream from an image.

Rule 1. The nodes of an image are Redis's nodes (engine/redis_nodes/nodes.py). A restored stream has the nodes of its
        payload, with the first ids, counts and sizes that Redis would show.
Rule 2. Pending entries that the stream does not have, because they were trimmed or deleted, are recorded
        as gone in the restored stream (engine/shared/history.py, rule 3).
Rule 3. Owned entries get their owners in the order of their delivery times, not of their ids, so that each is
        appended to the end of the delivery order.
Rule 4. All of this is done in steps (headwater/common/steps.py), between which the thread lets the loop run.
Rule 5. Payloads contain times of the wall clock, the engine uses steady time; `retime` converts between them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator

from headwater.commands.call import Call
from headwater.common.model import id_after
from headwater.common.steps import Steps
from headwater.engine.facts.facts import HEADROOM, ID_BYTES
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.image.snapshot import GroupSnapshot, StreamSnapshot, ids_of
from headwater.engine.redis_nodes.entry_fields import elements, take_fields
from headwater.engine.streams.stream import StoredStream
from headwater.rdb import pending as columns
from headwater.rdb.image import (
    NEVER,
    NOBODY,
    ConsumerImage,
    GroupImage,
    IdempotencyImage,
    NodeImage,
    PendingImage,
    ProducerImage,
    StreamImage,
)

ID = tuple[int, int]

_RECORD_BYTES = 32
"""Size of a pending entry in a fact, in bytes (engine/facts/facts.py, owned)."""

_ENTRIES_AT_ONCE = 512
_PENDING_AT_ONCE = 1024
"""Maximum number of entries, and of pending entries, in one step, which takes about 0.5 ms."""

_SORTED_AT_ONCE = 8192
"""Maximum number of pending entries sorted in one step; they are sorted only if their times are unordered."""


def retime(image: StreamImage, changed: Callable[[int], int]) -> Steps[None]:
    """Replace each time of an image with the result of ``changed``. 0 and `NEVER` are not times and stay."""
    for group in image.groups:
        words = group.pending.words
        for first in range(0, len(words), 4 * _PENDING_AT_ONCE):
            for at in range(first + 2, min(first + 4 * _PENDING_AT_ONCE, len(words)), 4):
                if words[at]:
                    words[at] = max(1, changed(words[at]))
            yield
        for consumer in group.consumers:
            consumer.seen_time = changed(consumer.seen_time)
            if consumer.active_time != NEVER:
                consumer.active_time = changed(consumer.active_time)


# --- from the engine ------------------------------------------------------------------------------


def image_of(stream: StreamSnapshot) -> Steps[StreamImage]:
    """Return the image of a stream, made from its snapshot."""
    groups = [GroupImage(one.name, one.last_id, one.entries_read) for one in stream.groups]
    for image, group in zip(groups, stream.groups, strict=True):
        yield from _fill_group(image, group)
    duration_s, maxsize, added, duplicates = stream.idempotency
    producers = [ProducerImage(pid, iids) for pid, iids in stream.producers]
    return StreamImage(
        _Nodes(stream),
        stream.length,
        stream.first_id,
        stream.last_id,
        stream.max_deleted_id,
        stream.entries_added,
        groups,
        IdempotencyImage(duration_s, maxsize, producers, added, duplicates),
    )


class _Nodes(Collection[NodeImage]):
    """The nodes with their live entries, made one by one during iteration.

    A node is filled up with deleted entries to the number of entries that were added to it, because ``~`` depends on
    that number and on the node's first and last id. The fields of deleted entries are gone, so each has the node's
    field names. Their ids, except the first and the last, are gone as well and replaced by unused ids.
    """

    def __init__(self, stream: StreamSnapshot) -> None:
        self._stream = stream

    def __len__(self) -> int:
        return len(self._stream.nodes)

    def __contains__(self, node: object) -> bool:
        return any(one == node for one in self)

    def __iter__(self) -> Iterator[NodeImage]:
        number, image = 0, None
        for node, block, first, end in self._stream.live_runs():
            while image is None or number < node:
                if image is not None:
                    number += 1
                    yield self._whole(image, number - 1)
                image = NodeImage(self._stream.nodes.first(number))
            ids = ids_of(block, first, end)
            if not image.dead and (ids[0], ids[1]) != image.first:
                self._begin(image, number)
            image.ids += ids
            take_fields(block.data, block.offsets, first, end, image.wire, image.ends, image.pairs)
            image.dead += bytes(end - first)
        while number < len(self):
            if image is None:
                image = NodeImage(self._stream.nodes.first(number))
            yield self._whole(image, number)
            number, image = number + 1, None

    def _whole(self, image: NodeImage, number: int) -> NodeImage:
        """Return the node including its deleted entries."""
        if not image.dead:
            self._begin(image, number)
        missing = self._stream.nodes.taken(number) - len(image.dead)
        return self._filled(image, number, missing) if missing > 0 else image

    def _begin(self, image: NodeImage, number: int) -> None:
        """Begin a node whose first entry is deleted."""
        self._add_deleted(image, number, image.first)

    def _add_deleted(self, image: NodeImage, number: int, entry_id: ID) -> None:
        names = elements(self._stream.nodes.names_of(number))
        image.wire += b"".join([b"$%d\r\n%b\r\n$0\r\n\r\n" % (len(name), name) for name in names])
        image.ids.extend(entry_id)
        image.ends.append(len(image.wire))
        image.pairs.append(len(names))
        image.dead.append(1)

    def _filled(self, image: NodeImage, number: int, missing: int) -> NodeImage:
        """Return the node with ``missing`` more deleted entries: its last one, and others with unused ids."""
        last, made, begin = self._stream.nodes.last(number), NodeImage(image.first), 0
        ids = list(zip(image.ids[::2], image.ids[1::2], strict=True))
        missing -= ids[-1] != last
        for at, entry_id in enumerate(ids):
            made.ids.extend(entry_id)
            made.wire += image.wire[begin : image.ends[at]]
            begin = image.ends[at]
            made.ends.append(len(made.wire))
            made.pairs.append(image.pairs[at])
            made.dead.append(image.dead[at])
            following = ids[at + 1] if at + 1 < len(ids) else last
            free = id_after(*entry_id)
            while missing > 0 and free < following:
                self._add_deleted(made, number, free)
                free, missing = id_after(*free), missing - 1
        if ids[-1] != last:
            self._add_deleted(made, number, last)
        return made


def _fill_group(image: GroupImage, group: GroupSnapshot) -> Steps[None]:
    numbers = {NOBODY: NOBODY}
    for cid, name, seen_time, active_time in group.consumers:
        image.consumers.append(ConsumerImage(name, seen_time, active_time))
        numbers[cid] = len(image.consumers)
    pel, words, owners = group.pel, image.pending.words, image.pending.owners
    for number, block in enumerate(pel.blocks):
        records = block.records()
        owned = records[3::4]
        words += records
        owners.extend([numbers[word >> 32] for word in owned])
        at = len(words) - len(records) + 3
        words[at::4] = array("Q", [word & 0xFFFFFFFF for word in owned])
        if pel.big_counts:
            for place in range(at - 3, len(words), 4):
                entry_id = (words[place], words[place + 1])
                words[place + 3] = pel.big_counts.get(entry_id, words[place + 3])
        if number % 4 == 0:
            yield
    image.released.extend([word for entry_id in group.released for word in entry_id])
    image.released.extend([word for _, ms, seq in group.delayed for word in (ms, seq)])


# --- to the engine --------------------------------------------------------------------------------


class Restoration:
    """Makes a stream from an image. Call `prepare`, admit `size` bytes, then call `apply`."""

    def __init__(self, image: StreamImage) -> None:
        self.image = image
        self.deleted: list[ID] = []
        self.gone: ID | None = None
        """The greatest id of a pending entry that the stream does not have; None if it has all of them."""
        self.orders: list[array[int]] = []
        """The numbers of each group's owned entries, in the order of their delivery times."""
        self.size = 0
        """An upper bound for the facts of `apply`, in bytes, without keys."""

    def prepare(self) -> Steps[None]:
        """Examine the whole image and set the attributes."""
        for node in self.image.nodes:
            at = node.dead.find(1)
            while at >= 0:
                self.deleted.append((node.ids[2 * at], node.ids[2 * at + 1]))
                at = node.dead.find(1, at + 1)
            self.size += HEADROOM * len(node.dead) + len(node.wire)
            yield
        for group in self.image.groups:
            yield from self._find_gone(group)
            self.orders.append((yield from _by_time(group.pending)))
        self._weigh()

    def _find_gone(self, group: GroupImage) -> Steps[None]:
        at, found = len(group.pending.owners) - 1, False
        nodes = list(self.image.nodes)
        while at >= 0 and nodes and not found:
            at, found = columns.pass_live(group.pending, at, nodes.pop())
            yield
        if at >= 0:
            gone = (group.pending.words[4 * at], group.pending.words[4 * at + 1])
            self.gone = gone if self.gone is None else max(self.gone, gone)

    def _weigh(self) -> None:
        size = 6 * HEADROOM + (ID_BYTES + 1) * len(self.deleted)
        for group, order in zip(self.image.groups, self.orders, strict=True):
            size += 4 * HEADROOM + len(group.name) + _RECORD_BYTES * len(group.pending.owners)
            size += sum(2 * HEADROOM + len(consumer.name) for consumer in group.consumers)
            at = 0
            while at < len(order):
                at = columns.run_end(group.pending, order, at, _PENDING_AT_ONCE)
                size += HEADROOM
            size += HEADROOM * (len(group.released) // _PENDING_AT_ONCE)
        if self.image.idempotency is not None:
            for pid, iids in self.image.idempotency.producers:
                size += HEADROOM + len(pid) + sum(HEADROOM + len(iid) for iid, _ in iids)
        self.size += size + HEADROOM * (len(self.deleted) // _ENTRIES_AT_ONCE)

    def apply(self, call: Call, key: bytes, first_gid: int) -> Steps[None]:
        """Create the stream at ``key``, replacing any value. Its groups are numbered from ``first_gid`` on. The
        caller must have called `Call.admit`."""
        image = self.image
        stream = call.create_stream(key)
        if self.gone is not None:
            stream.trim_through(*self.gone)
        for node in image.nodes:
            for first in range(0, len(node.dead), _ENTRIES_AT_ONCE):
                end = min(first + _ENTRIES_AT_ONCE, len(node.dead))
                stream.append_all(node.ids, node.wire, node.ends, node.pairs, first, end)
                yield
        for first in range(0, len(self.deleted), _ENTRIES_AT_ONCE):
            stream.delete(self.deleted[first : first + _ENTRIES_AT_ONCE], marks=False)
            yield
        stream.set_id(image.last_id, image.entries_added, image.max_deleted_id)
        for number, group in enumerate(image.groups):
            yield from _place_group(stream, group, self.orders[number], first_gid + number)
        known = image.idempotency
        if known is not None:
            producers = [(pid, iids) for pid, iids in known.producers]
            stream.idempotency.restore(
                known.duration_s,
                known.max_size,
                known.added,
                known.duplicates,
                producers,
                now_ms=call.now_ms,
            )


def _by_time(pending: PendingImage) -> Steps[array[int]]:
    """Return the numbers of the owned entries, sorted by delivery time, then by id."""
    count = len(pending.owners)
    orders = []
    for first in range(0, count, _SORTED_AT_ONCE):
        orders.append(columns.owned(pending, first, min(first + _SORTED_AT_ONCE, count)))
        yield
    while len(orders) > 1:
        pairs = [orders[at : at + 2] for at in range(0, len(orders), 2)]
        orders = []
        for pair in pairs:
            orders.append(columns.merged(pending, *pair) if len(pair) > 1 else pair[0])
            yield
    return orders[0] if orders else array("I")


def _place_group(
    stream: StoredStream, image: GroupImage, order: array[int], gid: int
) -> Steps[None]:
    read = image.entries_read
    if read is None or read > stream.entries_added:
        read = stream.entries_read_at(image.last_id)
    group = stream.create_group(image.name, gid, *image.last_id, read)
    consumers = [
        group.create_consumer(one.name, group.next_cid, one.seen_time) for one in image.consumers
    ]
    at = passed = 0
    while at < len(order):
        end = columns.run_end(image.pending, order, at, _PENDING_AT_ONCE)
        number = image.pending.owners[order[at]] - 1
        one, records = image.consumers[number], columns.records(image.pending, order, at, end)
        group.own(consumers[number], records, one.seen_time, one.active_time)
        passed += end - at
        at = end
        if passed >= _PENDING_AT_ONCE:
            passed = 0
            yield
    for consumer, one in zip(consumers, image.consumers, strict=True):
        if consumer.active_time != one.active_time:
            group.record_seen(consumer, one.seen_time, one.active_time)
    yield from _place_unowned(group, image)


def _place_unowned(group: ConsumerGroup, image: GroupImage) -> Steps[None]:
    """Add the released entries, then the delayed ones."""
    released, delayed = array("Q"), array("Q")
    records = columns.of_ids(image.pending, image.released)
    yield
    for at in range(0, len(records), 4):
        if records[at + 2]:
            delayed += records[at : at + 4]
        else:
            released.extend((records[at], records[at + 1], records[at + 3]))
    for at in range(0, len(released), 3 * _PENDING_AT_ONCE):
        group.release(released[at : at + 3 * _PENDING_AT_ONCE])
        yield
    for at in range(0, len(delayed), 4 * _PENDING_AT_ONCE):
        group.delay(delayed[at : at + 4 * _PENDING_AT_ONCE])
        yield
