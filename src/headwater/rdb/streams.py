"""A stream's value: types 15, 19, 21, 26 and 27, each the one before and something more.

    nodes n, (16-byte id as a string, listpack as a string)*
    length, last id                                         19: first id, greatest deleted id, added
    groups n: name, last id                                 19: entries read
              pending n, (16-byte id, time, count)*
              consumers n: name, seen time                  21: active time
                           pending n, 16-byte id*
                                                            27: released n, 16-byte id*
                        26: duration s, size, producers n: pid, n, (iid, id)*; added, duplicates

Type 15 is written by Redis 5.0 to 6.2, 19 by 7.0, 21 by 7.2 to 8.4 and by Valkey, 26 by 8.6, 27 by 8.8.

Source: Redis, rdb.c (rdbSaveObject, rdbLoadObject).
"""

from __future__ import annotations

from itertools import pairwise

from headwater.limits import MAX_ENTRIES_COUNT, MAX_RESTORED_BYTES
from headwater.rdb import stream_groups, stream_nodes
from headwater.rdb.image import (
    ID,
    EntryImage,
    IdempotencyImage,
    NodeImage,
    ProducerImage,
    StreamImage,
)
from headwater.rdb.lengths import Reader, put_id, put_length, put_string
from headwater.rdb.payload import BadPayload

FIRST, COUNTED, ACTIVE, IDEMPOTENT, RELEASED = 15, 19, 21, 26, 27
TYPES = (FIRST, COUNTED, ACTIVE, IDEMPOTENT, RELEASED)

_ENTRY_BYTES = 48
_ELEMENT_BYTES = 8
"""What an entry and a field take here beside their own bytes, in RESP and in the journal."""

_MAX_DURATION_S = 86400
_MAX_SIZE = 10_000


def read(kind: int, reader: Reader) -> StreamImage:
    """The stream that ``reader`` stands at the beginning of. Raises `BadPayload`."""
    nodes = _nodes(reader)
    length, last_id = reader.length(), reader.id()
    nodes = _in_order(nodes, last_id)
    live = sum(entry.live for node in nodes for entry in node.entries)
    if length != live:
        raise BadPayload(f"a stream of {live} entries says that it has {length}")
    max_deleted_id, added = (0, 0), length
    if kind >= COUNTED:
        reader.id()  # The first entry's id, which the entries tell better.
        # Redis 7.0 lets XSETID go below what was deleted; nothing else can.
        max_deleted_id = min(reader.id(), last_id)
        added = min(reader.length(), MAX_ENTRIES_COUNT)
    if added < length:
        raise BadPayload(f"a stream of {length} entries says that only {added} were added")
    image = StreamImage(nodes, last_id, max_deleted_id, added)
    image.groups = stream_groups.read(
        reader,
        counted=kind >= COUNTED,
        active=kind >= ACTIVE,
        released=kind >= RELEASED,
    )
    if kind >= IDEMPOTENT:
        image.idempotency = _idempotency(reader)
    return image


def _nodes(reader: Reader) -> list[NodeImage]:
    nodes: list[NodeImage] = []
    size = 0
    for _ in range(reader.count(2)):
        name = Reader(reader.string())
        first = name.raw_id()
        if name.left():
            raise BadPayload("a node's id has more than 16 bytes")
        node = stream_nodes.read(first, reader.packed())
        size += sum(map(_expanded_bytes, node.entries))
        if size > MAX_RESTORED_BYTES:
            raise BadPayload(f"the entries hold more than {MAX_RESTORED_BYTES} bytes")
        nodes.append(node)
    return nodes


def _expanded_bytes(entry: EntryImage) -> int:
    """What an entry takes once its field names stand with it."""
    elements = entry.elements
    return _ENTRY_BYTES + sum(map(len, elements)) + _ELEMENT_BYTES * len(elements)


def _in_order(nodes: list[NodeImage], last_id: ID) -> list[NodeImage]:
    """The nodes that have live entries, whose ids must rise up to ``last_id``, with those of the
    deleted ones whose ids do.

    An entry that was deleted at the end, and an id that XSETID then put before it, stand in the
    wrong order and are no fault.
    """
    if any(a.first >= b.first for a, b in pairwise(nodes)):
        raise BadPayload("the ids of nodes do not rise")
    following = (last_id[0], last_id[1] + 1)
    below: list[list[EntryImage]] = []
    for node in reversed(nodes):
        kept: list[EntryImage] = []
        for entry in reversed(node.entries):
            if entry.live and entry.id >= following:
                raise BadPayload("the ids of entries do not rise")
            if entry.live:
                following = entry.id
            if entry.live or entry.id < following:
                kept.append(entry)
        below.append(kept[::-1])
    last = (0, 0)
    ordered: list[NodeImage] = []
    for node, kept in zip(nodes, reversed(below), strict=True):
        rising: list[EntryImage] = []
        for entry in kept:
            if entry.id > last:
                rising.append(entry)
                last = entry.id
            elif entry.live:
                raise BadPayload("an entry has the id 0-0")
        if any(entry.live for entry in rising):
            ordered.append(NodeImage(node.first, rising))
    return ordered


def _idempotency(reader: Reader) -> IdempotencyImage:
    duration_s, max_size = reader.length(), reader.length()
    if not (1 <= duration_s <= _MAX_DURATION_S and 1 <= max_size <= _MAX_SIZE):
        raise BadPayload(f"idempotent ids live {duration_s} s, {max_size} of them: out of range")
    producers: dict[bytes, ProducerImage] = {}
    for _ in range(reader.count(2)):
        pid = reader.string()
        iids: dict[bytes, tuple[int, int]] = {}
        for _ in range(reader.count(3)):
            iid = reader.string()
            if not iid or iid in iids:
                raise BadPayload("an idempotent id is empty or named twice")
            iids[iid] = reader.id()
        if not pid or pid in producers or len(iids) > max_size:
            raise BadPayload("a producer has no name, another's name or too many ids")
        producers[pid] = ProducerImage(pid, list(iids.items()))
    added, duplicates = reader.length(), reader.length()
    return IdempotencyImage(
        duration_s,
        max_size,
        [producer for producer in producers.values() if producer.iids],
        min(added, MAX_ENTRIES_COUNT),
        min(duplicates, MAX_ENTRIES_COUNT),
    )


def write(kind: int, image: StreamImage) -> bytes:
    """The value of a stream in one of the forms from `COUNTED` on; what that form cannot hold is
    left out, or kept in another way where there is one (`stream_groups.write`)."""
    out = bytearray()
    put_length(out, len(image.nodes))
    for node in image.nodes:
        put_length(out, 16)
        out += node.first[0].to_bytes(8, "big") + node.first[1].to_bytes(8, "big")
        put_string(out, stream_nodes.write(node))
    live = image.live()
    put_length(out, len(live))
    put_id(out, image.last_id)
    put_id(out, live[0].id if live else (0, 0))
    put_id(out, image.max_deleted_id)
    put_length(out, image.entries_added)
    stream_groups.write(out, image.groups, active=kind >= ACTIVE, released=kind >= RELEASED)
    if kind >= IDEMPOTENT:
        assert image.idempotency is not None, "this form says what is known of producers"
        _put_idempotency(out, image.idempotency)
    return bytes(out)


def _put_idempotency(out: bytearray, image: IdempotencyImage) -> None:
    put_length(out, image.duration_s)
    put_length(out, image.max_size)
    put_length(out, len(image.producers))
    for producer in image.producers:
        put_string(out, producer.pid)
        put_length(out, len(producer.iids))
        for iid, entry_id in producer.iids:
            put_string(out, iid)
            put_id(out, entry_id)
    put_length(out, image.added)
    put_length(out, image.duplicates)
