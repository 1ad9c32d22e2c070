"""A stream's value: types 15, 19, 21, 26 and 27. Each extends the previous one.

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

from headwater.common.limits import MAX_ENTRIES_COUNT, MAX_RESTORED_BYTES
from headwater.common.steps import Steps
from headwater.rdb import stream_groups
from headwater.rdb.errors import BadPayload
from headwater.rdb.image import (
    ID,
    IdempotencyImage,
    NodeImage,
    ProducerImage,
    StreamImage,
)
from headwater.rdb.lengths import ByteReader, put_id, put_length, put_string
from headwater.rdb.stream_nodes import NodeReader, NodeWriter, keep, rises

FIRST, COUNTED, ACTIVE, IDEMPOTENT, RELEASED = 15, 19, 21, 26, 27
TYPES = (FIRST, COUNTED, ACTIVE, IDEMPOTENT, RELEASED)

_MAX_DURATION_S = 86400
_MAX_SIZE = 10_000

_ENTRIES_AT_ONCE = 512
"""Maximum number of entries of a node that are read or written in one step."""


def read(kind: int, reader: ByteReader) -> Steps[StreamImage]:
    """Read a stream. Raises `BadPayload`."""
    nodes = yield from _nodes(reader)
    length, last_id = reader.length(), reader.id()
    nodes = yield from _in_order(nodes, last_id)
    live = sum(node.dead.count(0) for node in nodes)
    if length != live:
        raise BadPayload(f"a stream of {live} entries has the length {length}")
    max_deleted_id, added = (0, 0), length
    if kind >= COUNTED:
        reader.id()  # The first entry's id, which follows from the entries.
        # The greatest deleted id is above the last id only if Redis 7.0 executed XSETID.
        max_deleted_id = min(reader.id(), last_id)
        added = min(reader.length(), MAX_ENTRIES_COUNT)
    if added < length:
        raise BadPayload(f"a stream of {length} entries has only {added} entries added")
    image = StreamImage(nodes, length, _first_live(nodes), last_id, max_deleted_id, added)
    image.groups = yield from stream_groups.read(
        reader,
        counted=kind >= COUNTED,
        active=kind >= ACTIVE,
        released=kind >= RELEASED,
    )
    if kind >= IDEMPOTENT:
        image.idempotency = _idempotency(reader)
    return image


def _nodes(reader: ByteReader) -> Steps[list[NodeImage]]:
    nodes: list[NodeImage] = []
    size = 0
    for _ in range(reader.count(2)):
        name = ByteReader(reader.string())
        first = name.raw_id()
        if name.left():
            raise BadPayload("a node's id has more than 16 bytes")
        pack = bytearray(reader.string())
        node = NodeReader(
            first, pack, most=reader.most_items(), size=size, most_bytes=MAX_RESTORED_BYTES
        )
        while node.step(_ENTRIES_AT_ONCE):
            yield
        nodes.append(node.node())
        reader.charge_items(node.elements())
        size = node.size
        yield
    return nodes


def _first_live(nodes: list[NodeImage]) -> ID:
    """Return the id of the first live entry, or 0-0 without live entries."""
    if not nodes:
        return 0, 0
    at = nodes[0].dead.index(0)
    return nodes[0].ids[2 * at], nodes[0].ids[2 * at + 1]


def _in_order(nodes: list[NodeImage], last_id: ID) -> Steps[list[NodeImage]]:
    """Return the nodes that have live entries. Ids of live entries must be ascending up to ``last_id``.
    Deleted entries are removed if their ids are out of order.

    Such ids are not an error: they result if an entry was deleted at the end of the stream, XSETID lowered the
    last id, and another entry was added.
    """
    if any(a.first >= b.first for a, b in pairwise(nodes)):
        raise BadPayload("the ids of nodes are not ascending")
    if (yield from _is_in_order(nodes, last_id)):
        return nodes
    following = (last_id[0], last_id[1] + 1)
    below: list[list[int]] = []
    for node in reversed(nodes):
        kept: list[int] = []
        for at in range(len(node.dead) - 1, -1, -1):
            entry_id = (node.ids[2 * at], node.ids[2 * at + 1])
            if not node.dead[at] and entry_id >= following:
                raise BadPayload("the ids of entries are not ascending")
            if not node.dead[at]:
                following = entry_id
            if not node.dead[at] or entry_id < following:
                kept.append(at)
        below.append(kept[::-1])
        yield
    last = (0, 0)
    ordered: list[NodeImage] = []
    for node, kept in zip(nodes, reversed(below), strict=True):
        rising: list[int] = []
        for at in kept:
            entry_id = (node.ids[2 * at], node.ids[2 * at + 1])
            if entry_id > last:
                rising.append(at)
                last = entry_id
            elif not node.dead[at]:
                raise BadPayload("an entry has the id 0-0")
        if not all(node.dead[at] for at in rising):
            ordered.append(node if len(rising) == len(node.dead) else keep(node, rising))
        yield
    return ordered


def _is_in_order(nodes: list[NodeImage], last_id: ID) -> Steps[bool]:
    """Return whether all entries are live and their ids ascend, up to ``last_id`` at most. This is the usual case."""
    last = (0, 0)
    for node in nodes:
        if not node.dead or 1 in node.dead or not rises(node.ids, *last):
            return False
        last = (node.ids[len(node.ids) - 2], node.ids[len(node.ids) - 1])
        yield
    return last <= last_id


def _idempotency(reader: ByteReader) -> IdempotencyImage:
    duration_s, max_size = reader.length(), reader.length()
    if not (1 <= duration_s <= _MAX_DURATION_S and 1 <= max_size <= _MAX_SIZE):
        raise BadPayload(f"idempotent ids: duration {duration_s} s or size {max_size} out of range")
    producers: dict[bytes, ProducerImage] = {}
    for _ in range(reader.count(2)):
        pid = reader.string()
        iids: dict[bytes, tuple[int, int]] = {}
        for _ in range(reader.count(3)):
            iid = reader.string()
            if not iid or iid in iids:
                raise BadPayload("an idempotent id is empty or occurs twice")
            iids[iid] = reader.id()
        if not pid or pid in producers or len(iids) > max_size:
            raise BadPayload("a producer has an empty name, a duplicate name or too many ids")
        producers[pid] = ProducerImage(pid, list(iids.items()))
    added, duplicates = reader.length(), reader.length()
    return IdempotencyImage(
        duration_s,
        max_size,
        [producer for producer in producers.values() if producer.iids],
        min(added, MAX_ENTRIES_COUNT),
        min(duplicates, MAX_ENTRIES_COUNT),
    )


def write(kind: int, image: StreamImage, out: bytearray) -> Steps[None]:
    """Write a stream in one of the forms from `COUNTED` on. Parts that the form cannot represent are written in
    another way if possible (`stream_groups.write`), and omitted otherwise."""
    put_length(out, len(image.nodes))
    for node in image.nodes:
        put_length(out, 16)
        out += node.first[0].to_bytes(8, "big") + node.first[1].to_bytes(8, "big")
        writer = NodeWriter(node)
        while writer.step(_ENTRIES_AT_ONCE):
            yield
        put_length(out, len(writer.pack))
        out += writer.pack
        yield
    put_length(out, image.length)
    put_id(out, image.last_id)
    put_id(out, image.first_id)
    put_id(out, image.max_deleted_id)
    put_length(out, image.entries_added)
    yield from stream_groups.write(
        out, image.groups, active=kind >= ACTIVE, released=kind >= RELEASED
    )
    if kind >= IDEMPOTENT:
        assert image.idempotency is not None, "this form contains idempotent producers"
        _put_idempotency(out, image.idempotency)


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
