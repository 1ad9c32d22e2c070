"""Checks the invariants of the engine by recounting everything: `broken_invariants` lists violations.

It checks every rule in the docstrings of this package that a state can break, in the slow and obvious
way. Tests call it after every step.

    >>> from headwater.engine.keyspace.keyspace import Keyspace
    >>> keyspace = Keyspace()
    >>> stream = keyspace.databases[0].create_stream(b"orders", keyspace.next_sid)
    >>> stream.entries_added = -1
    >>> broken_invariants(keyspace)
    ["database 0, stream b'orders': entries_added is -1, below the 0 entries that are there"]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from headwater.common.limits import (
    MAX_DELIVERY_COUNT,
    MAX_IDMP_DURATION_S,
    MAX_IDMP_MAXSIZE,
    PENDING_BLOCK_RECORDS,
)
from headwater.common.model import UNKNOWN
from headwater.engine.bodies.blobs import Blob
from headwater.engine.bodies.block_account import SEALED
from headwater.engine.bodies.sealed_block import SealedBlock, marks_of, offsets_in
from headwater.engine.entries.entry_block import EntryBlock
from headwater.engine.groups.consumer import NEVER, GroupConsumer
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending import NOBODY, NOWHERE
from headwater.engine.groups.pending_block import PendingBlock
from headwater.engine.keyspace.database import Database
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.keyspace.memory_totals import account_faults
from headwater.engine.redis_nodes.entry_fields import elements
from headwater.engine.redis_nodes.node_runs import NodeRun
from headwater.engine.redis_nodes.packed_nodes import PackedNodes
from headwater.engine.streams.idempotency import Idempotency
from headwater.engine.streams.stream import StoredStream
from headwater.engine.tier.sealing import Sealing

_BIG = 2**32 - 1
"""A delivery count in a record that means: the count is in the side table."""

ID = tuple[int, int]


def broken_invariants(keyspace: Keyspace) -> list[str]:
    """Return one sentence for each fault of ``keyspace``; an empty list if it has none."""
    found = [*_names(keyspace), *_book_faults(keyspace), *account_faults(keyspace)]
    for database in keyspace.databases:
        found += _database(database)
        for key, value in database.values.items():
            if isinstance(value, StoredStream):
                where = f"database {database.index}, stream {key!r}"
                found += [f"{where}: {sentence}" for sentence in _stream(value)]
    return found


def _shown(entry_id: ID) -> str:
    return f"{entry_id[0]}-{entry_id[1]}"


# --- keys -----------------------------------------------------------------------------------------


def _names(keyspace: Keyspace) -> Iterator[str]:
    """Check the numbers by which facts refer to streams and groups, and the lists over all databases."""
    streams = {
        value.sid: value
        for database in keyspace.databases
        for value in database.values.values()
        if isinstance(value, StoredStream)
    }
    groups = {group.gid: group for s in streams.values() for group in s.groups.values()}
    if keyspace.streams != streams:
        yield f"streams by number are {sorted(keyspace.streams)}, databases hold {sorted(streams)}"
    if keyspace.groups != groups:
        yield f"groups by number are {sorted(keyspace.groups)}, streams hold {sorted(groups)}"
    if max(streams, default=0) >= keyspace.next_sid or max(groups, default=0) >= keyspace.next_gid:
        yield f"the next numbers, {keyspace.next_sid} and {keyspace.next_gid}, are in use"
    delaying = {gid for gid, group in groups.items() if group.delayed}
    if set(keyspace.delaying) != delaying:
        yield f"groups {sorted(keyspace.delaying)} are listed as delaying, not {sorted(delaying)}"
    notes = set(keyspace.due_notes)
    for gid, group in keyspace.delaying.items():
        if (group.next_due(), gid) not in notes:
            yield f"no due note for the next delayed entry of group {gid}"
    for gid, cids in keyspace.unseen.items():
        for cid in cids:
            if gid not in groups or cid not in groups[gid].by_cid:
                yield f"consumer {cid} of group {gid} has an unwritten seen time and does not exist"


def _database(database: Database) -> Iterator[str]:
    where = f"database {database.index}"
    for key, value in database.values.items():
        if isinstance(value, StoredStream):
            if value.db is not database or value.key != key:
                yield f"{where}: the stream at {key!r} has the key {value.key!r}"
        elif not isinstance(value, bytes) and not value:
            yield f"{where}: {key!r} is an empty {type(value).__name__}"
    for key in database.expiries.keys() - database.values.keys():
        yield f"{where}: {key!r} has an expiry and does not exist"
    noted = set(database.expiry_notes) if database in database.keyspace.expiring else set()
    for key, at in database.expiries.items():
        if (at, key) not in noted:
            yield f"{where}: no expiry note for {key!r}, which expires at {at}"
    for key in database.used:
        if isinstance(database.values.get(key), StoredStream | None):
            yield f"{where}: {key!r} has a time of use and is a stream, or does not exist"
    for key in database.values.keys() - set(database.order.names):
        yield f"{where}: SCAN would never find {key!r}"
    numbers = list(database.order.numbers)
    if numbers != sorted(set(numbers)) or numbers[-1:] > [database.order.next_number - 1]:
        yield f"{where}: the order of keys is not ascending"


# --- streams --------------------------------------------------------------------------------------


def _stream(stream: StoredStream) -> Iterator[str]:
    yield from _log(stream)
    yield from _nodes(stream)
    last = stream.log.last()
    if stream.last_id < max(last, stream.max_deleted_id):
        yield (
            f"last_id {_shown(stream.last_id)} is below the last entry {_shown(last)} or the "
            f"deleted {_shown(stream.max_deleted_id)}"
        )
    if stream.entries_added < stream.length:
        yield (
            f"entries_added is {stream.entries_added}, below the {stream.length} entries that "
            "are there"
        )
    yield from _idempotency(stream.idempotency)
    for name, group in stream.groups.items():
        if group.stream is not stream or group.name != name:
            yield f"group {name!r} has the name {group.name!r} and the stream {group.stream.key!r}"
        yield from (f"group {name!r}: {sentence}" for sentence in _group(group))


def _log(stream: StoredStream) -> Iterator[str]:
    log = stream.log
    live = sum(block.live for block in log.blocks)
    if log.length != live:
        yield f"the length is {log.length}, its blocks have {live} live entries"
    before: ID = (-1, 0)
    for number, block in enumerate(log.blocks):
        yield from (f"block {number}: {sentence}" for sentence in _block_faults(block))
        ids = block.known_ids()
        for at in range(block.count):
            entry_id = (ids[2 * at], ids[2 * at + 1])
            if entry_id <= before:
                yield f"block {number}: {_shown(entry_id)} is not above the id before it"
            before = entry_id


def _nodes(stream: StoredStream) -> Iterator[str]:
    nodes, before = stream.nodes, (-1, 0)
    packed = 0 if nodes.packed is None else sum(run.count for run in nodes.packed.runs)
    if len(nodes.names) - nodes.gone + packed != len(nodes):
        yield f"{len(nodes)} nodes, {packed} of them packed, and {len(nodes.names)} sets of field names"
    if packed and len(nodes) == packed:
        yield f"the newest of {packed} nodes is packed"
    if nodes.packed is not None:
        yield from _runs(nodes.packed)
    for node in range(len(nodes)):
        first, last = nodes.first(node), nodes.last(node)
        there = stream.log.count_range(first, last)
        if not before < first <= last:
            yield f"node {node} from {_shown(first)} to {_shown(last)} is out of order"
        if not nodes.live(node) <= nodes.taken(node) or nodes.live(node) != there:
            yield f"node {node} counts {nodes.live(node)} entries instead of {there}"
        before = last
    counted = sum(nodes.live(node) for node in range(len(nodes)))
    if counted != stream.length:
        yield f"the nodes count {counted} entries, the stream has {stream.length}"


def _runs(packed: PackedNodes) -> Iterator[str]:
    for number, run in enumerate(packed.runs):
        fresh = NodeRun(run.unpacked(), run.names)
        counted = (run.count, run.live, run.last_ms, run.last_seq)
        if counted != (fresh.count, fresh.live, fresh.last_ms, fresh.last_seq) or not run.count:
            yield f"run {number} of nodes does not count what it has"
        if not isinstance(run.names, bytes) and len(run.names) != run.count:
            yield f"run {number} has {run.count} nodes and {len(run.names)} sets of field names"


def _idempotency(known: Idempotency) -> Iterator[str]:
    streams, deadlines = known.keyspace.streams, known.keyspace.iid_deadlines
    if known.sid not in streams or streams[known.sid].idempotency is not known:
        yield f"its idempotent producers belong to stream number {known.sid}"
    if not (0 < known.duration_s <= MAX_IDMP_DURATION_S and 0 < known.maxsize <= MAX_IDMP_MAXSIZE):
        yield f"iids are remembered for {known.duration_s} s, {known.maxsize} for each producer"
    tracked = sum(len(producer.iids) for producer in known.producers.values())
    if known.tracked != tracked or min(known.added, known.duplicates) < 0:
        yield f"{known.tracked} iids are counted as tracked instead of {tracked}"
    noted = set(deadlines.notes) if known.producers else set()
    for pid, producer in known.producers.items():
        if not 0 < len(producer.iids) <= known.maxsize:
            yield f"producer {pid!r} has {len(producer.iids)} iids, of at most {known.maxsize}"
        elif len(producer.since_ms) != len(producer.iids):
            yield f"producer {pid!r} has {len(producer.iids)} iids and {len(producer.since_ms)} times"
        elif (
            producer.noted_ms > known.runs_out_ms(producer)
            or (producer.noted_ms, known.sid, pid) not in noted
        ):
            yield f"no deadline for the oldest iid of producer {pid!r}"


# --- groups ---------------------------------------------------------------------------------------


def _group(group: ConsumerGroup) -> Iterator[str]:
    yield from _pending_list(group)
    yield from _owners(group)
    yield from _delivery_order(group)
    if not UNKNOWN <= group.entries_read <= group.stream.entries_added:
        yield f"entries_read is {group.entries_read}, of {group.stream.entries_added} added"
    log, most = group.stream.log, group.stream.max_trimmed_id
    for at in _positions(group):
        entry_id = group.pel.id(at)
        if entry_id > most and not log.contains(*entry_id) and not group.pel.block_at(at).dangling:
            yield f"{_shown(entry_id)} is pending and deleted, and its block is not marked dangling"


def _positions(group: ConsumerGroup) -> Iterator[int]:
    """Yield all positions of the pending list; `_pending_list` checks that none is missing."""
    at = group.pel.seek(0, 0)
    while at != NOWHERE:
        yield at
        at = group.pel.after(at)


def _pending_list(group: ConsumerGroup) -> Iterator[str]:
    pel = group.pel
    ids = [pel.id(at) for at in _positions(group)]
    held = sum(block.count() for block in pel.blocks)
    if not len(pel) == len(ids) == held:
        yield f"the pending length is {len(pel)}, blocks hold {held}, {len(ids)} can be reached"
    if any(a >= b for a, b in pairwise(ids)):
        yield "pending ids are not ascending"
    for number, block in enumerate(pel.blocks):
        yield from (f"pending block {number}: {sentence}" for sentence in _pending_block(block))
    big = {pel.id(at) for at in _positions(group) if _low_half(group, at) == _BIG}
    if set(pel.big_counts) != big or any(n < _BIG for n in pel.big_counts.values()):
        yield f"large delivery counts are stored for {sorted(pel.big_counts)} instead of {sorted(big)}"
    elif any(pel.delivery_count(at) > MAX_DELIVERY_COUNT for at in _positions(group)):
        yield "a delivery count is above the maximum"


def _low_half(group: ConsumerGroup, at: int) -> int:
    return group.pel.block_at(at).words[4 * group.pel.number_in_block(at) + 3] & _BIG


def _pending_block(block: PendingBlock) -> Iterator[str]:
    records, room = block.records(), len(block.words) // 4
    if not 0 < block.count() <= PENDING_BLOCK_RECORDS or not block.end <= room:
        yield f"records from {block.head} to {block.end}, of {room}"
    elif min(records[2::4]) < block.min_time:
        yield f"min_time {block.min_time} is above the earliest, {min(records[2::4])}"
    elif not all(block.owners >> (word >> 32 & 63) & 1 for word in records[3::4]):
        yield f"owners {block.owners:#x} lack the owner of a record"


def _owners(group: ConsumerGroup) -> Iterator[str]:
    """Check that each pending entry is either owned, released or delayed."""
    pel = group.pel
    owned: dict[int, int] = {}
    unowned: dict[ID, int] = {}
    for at in _positions(group):
        if pel.owner(at) == NOBODY:
            unowned[pel.id(at)] = pel.time(at)
        else:
            owned[pel.owner(at)] = owned.get(pel.owner(at), 0) + 1
    for cid in owned.keys() - group.by_cid.keys():
        yield f"{owned[cid]} entries are owned by consumer {cid}, which does not exist"
    if group.released.keys() & group.delayed.keys():
        yield "an entry is both released and delayed"
    stated = dict.fromkeys(group.released, 0) | group.delayed
    if stated != unowned:
        yield f"released and delayed are {stated}, without an owner are {unowned}"
    if group.due_order != sorted((due, *entry_id) for entry_id, due in group.delayed.items()):
        yield f"due_order is {group.due_order}, delayed are {group.delayed}"
    for name, consumer in group.consumers.items():
        yield from (
            f"consumer {name!r}: {sentence}"
            for sentence in _consumer(group, name, consumer, owned.get(consumer.cid, 0))
        )
    if len(group.by_cid) != len(group.consumers):
        yield f"{len(group.consumers)} consumers have {len(group.by_cid)} numbers"


def _consumer(
    group: ConsumerGroup, name: bytes, consumer: GroupConsumer, owned: int
) -> Iterator[str]:
    if consumer.name != name or group.by_cid.get(consumer.cid) is not consumer:
        yield f"its name is {consumer.name!r}, its number {consumer.cid}"
    if not NOBODY < consumer.cid < group.next_cid:
        yield f"its number {consumer.cid} is not below the next, {group.next_cid}"
    if consumer.pending != owned:
        yield f"it counts {consumer.pending} pending entries and owns {owned}"
    if consumer.active_time < 0 and consumer.active_time != NEVER:
        yield f"it was active at {consumer.active_time}"


def _delivery_order(group: ConsumerGroup) -> Iterator[str]:
    """Check that the order contains exactly the owned records, once each, by time."""
    pel, order = group.pel, group.order
    if not len(order.times) * 4 == len(order.ids) == len(order.counts) * 4 or (
        list(order.times) != sorted(order.times)
    ):
        yield "the runs of the delivery order are out of order"
        return
    if order.covered != sum(order.counts):
        yield f"the delivery order covers {sum(order.counts)} records, not {order.covered}"
    walked = list(order.walk())
    owned = [at for at in _positions(group) if pel.owner(at) != NOBODY]
    if sorted(walked) != owned:
        yield f"the delivery order has {len(walked)} entries, {len(owned)} are owned"
    times = [pel.time(at) for at in walked]
    if times != sorted(times):
        yield "the delivery order does not follow the delivery times"
    runs: dict[int, list[tuple[ID, ID]]] = {}
    for time, first, last in order.runs():
        runs.setdefault(time, []).append((first, last))
    for time, covered in runs.items():
        covered.sort()
        if any(first > last for first, last in covered) or any(
            a[1] >= b[0] for a, b in pairwise(covered)
        ):
            yield f"two runs of the time {time} cover the same id"
    if order.index_time >= 0 and order.index != runs.get(order.index_time, []):
        yield f"the index of the time {order.index_time} does not match the runs of that time"
    if owned and pel.find(*pel.id(owned[0])) == NOWHERE:
        yield f"{_shown(pel.id(owned[0]))} is pending and cannot be found"


# --- blocks of entries: sealed ones are opened, their contents have to satisfy the same rules -----


def _block_faults(block: EntryBlock) -> Iterator[str]:
    """Yield one sentence for each fault of a block."""
    dead = block.dead if block.dead is not None else bytes(block.count)
    if block.packed is not None:
        faults = list(_opened(block, block.packed))
        if faults:
            yield from faults
            return
    edges, ids, data = block.edges(), block.known_ids(), block.entries()
    there = len(edges)  # A closed block keeps the bytes of deleted entries at its end.
    if not (len(ids) == 2 * there and len(dead) == block.count <= there) or not (
        block.closed or block.count == there
    ):
        yield f"{block.count} entries, {there} offsets, {len(ids)} id halves"
        return
    alive = [at for at in range(block.count) if block.lives(at)]
    if block.live != len(alive) or not alive:
        yield f"{block.live} entries are counted as live instead of {len(alive)}"
        return
    if alive[0] != block.head or alive[-1] != block.count - 1:
        yield f"its live entries are from {alive[0]} to {alive[-1]}, not from its head to its end"
    if (ids[2 * block.count - 2], ids[2 * block.count - 1]) != (block.last_ms, block.last_seq):
        yield f"its last id is not {block.last_ms}-{block.last_seq}"
    if block.first() != (ids[2 * block.head], ids[2 * block.head + 1]):
        yield f"its first id is not {block.first()}"
    yield from _packed(block) if block.packed is not None else _written(block, alive)
    stored = block.packed is not None and block.packed.blob is not None
    if len(data) > block.sealing.block_bytes and there > 1 and not stored:
        yield f"{len(data)} bytes in {there} entries are too many for one block"
    for at in alive:
        if not _well_written(block, at):
            yield f"entry {at} is not a well-formed reply"


def _written(block: EntryBlock, alive: list[int]) -> Iterator[str]:
    """Check the rules that apply only to open and closed blocks."""
    living = sum(block.start(at + 1) - block.start(at) for at in alive)
    dead_bytes = len(block.data) - living
    if block.dead_bytes != dead_bytes or 2 * dead_bytes > len(block.data):
        yield f"dead_bytes is {block.dead_bytes} instead of {dead_bytes}, of {len(block.data)} bytes"
    if block.books == SEALED or (block.closed and block.room):
        yield f"it is accounted as {block.books}, with space for {block.room} bytes"


def _packed(block: EntryBlock) -> Iterator[str]:
    """Check the rules that apply only to sealed blocks."""
    packed = block.packed
    assert packed is not None
    if block.data or block.ids or block.offsets or block.room or not block.closed:
        yield "it is sealed and has uncompressed bytes"
    sparse = packed.blob is None and block.count - block.head > 2 * block.live
    if block.books != SEALED or sparse:
        yield f"{block.live} of {block.count - block.head} entries live, accounted as {block.books}"
    if (packed.wire is None) != (packed.blob is not None):
        yield "it is neither in memory nor on disk, or both"
    if packed.marks not in (b"", marks_of(block.edges(), packed.size)):
        yield "an entry does not begin where it is marked"


def _opened(block: EntryBlock, packed: SealedBlock) -> Iterator[str]:
    """Check the open part of a sealed block."""
    part, first, end, at = packed.data, packed.opened_from, packed.opened_to, packed.opened_at
    if part is None:
        return
    bodies = block.sealing.bodies
    _, data = bodies.load(packed, bodies.codec(packed.codec))
    starts = [*offsets_in(packed, data), packed.size]
    if not 0 <= first < end <= packed.count or (starts[first], starts[end]) != (at, at + len(part)):
        yield f"{len(part)} bytes from byte {at} on are open as the entries {first} to {end}"
    elif data[at : at + len(part)] != part:
        yield f"the bytes that are open as the entries {first} to {end} differ from the block's"
    if packed.rest is not None and (packed.wire is not None or len(part) == packed.size):
        yield "its compressed bytes are in memory twice, or not needed"


def _well_written(block: EntryBlock, at: int) -> bool:
    """Return whether the bytes of an entry are exactly its id and its fields."""
    ids = block.known_ids()
    wire = bytes(block.entries()[block.start(at) : block.start(at + 1)])
    name = b"%d-%d" % (ids[2 * at], ids[2 * at + 1])
    head = b"*2\r\n$%d\r\n%b\r\n*" % (len(name), name)
    if not wire.startswith(head):
        return False
    count, _, fields = wire[len(head) :].partition(b"\r\n")
    try:
        found = elements(fields)
    except ValueError:
        return False
    written = b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in found)
    return written == fields and bool(found) and b"%d" % len(found) == count and len(found) % 2 == 0


def _book_faults(keyspace: Keyspace) -> Iterator[str]:
    """Check that every block is accounted as kept, hot or sealed."""
    sums = [0, 0, 0]
    sealed_size = 0
    blocks = {id(block): block for s in keyspace.streams.values() for block in s.log.blocks}
    blobs = {}
    for block in blocks.values():
        if block.packed is not None and block.packed.blob is not None:
            blobs[block.packed.blob] = block.packed.size
        sums[block.books] += block.booked
        sealed_size += block.packed.size if block.packed is not None else 0
    sealing = keyspace.sealing
    found = [sealing.kept_bytes, sealing.hot_bytes, sealing.sealed_bytes]
    if any(least > more for least, more in zip(sums, found, strict=True)):
        yield f"blocks of {sums} bytes, kept, hot and sealed, are accounted as {found}"
    if sealed_size > sealing.sealed_size:
        yield f"{sealed_size} bytes are sealed, {sealing.sealed_size} are accounted"
    yield from _segment_faults(sealing, list(blobs))


def _segment_faults(sealing: Sealing, blobs: list[Blob]) -> Iterator[str]:
    """Check that every blob is counted in its segment, once. Blobs that are still read may be counted too."""
    found: dict[int, int] = {}
    for blob in blobs:
        found[blob.segment] = found.get(blob.segment, 0) + blob.place().size
    if len({blob.place() for blob in blobs}) < len(blobs):
        yield "two blobs are at the same place"
    counted = sealing.segments()
    for segment, live in found.items():
        if live > counted.get(segment, 0):
            yield f"segment {segment} has {live} live bytes, {counted.get(segment, 0)} are counted"
