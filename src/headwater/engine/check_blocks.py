"""The part of `headwater.engine.check` that checks blocks of entries. It opens sealed blocks: their
contents have to satisfy the same rules as those of open and closed blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.engine.blobs import Blob
from headwater.engine.entry_block import EntryBlock
from headwater.engine.entry_fields import elements
from headwater.engine.keyspace import Keyspace
from headwater.engine.sealed_block import SealedBlock, marks_of, offsets_in
from headwater.engine.block_account import SEALED
from headwater.engine.sealing import Sealing


def block_faults(block: EntryBlock) -> Iterator[str]:
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
    """Check what applies only to open and closed blocks."""
    living = sum(block.start(at + 1) - block.start(at) for at in alive)
    dead_bytes = len(block.data) - living
    if block.dead_bytes != dead_bytes or 2 * dead_bytes > len(block.data):
        yield f"dead_bytes is {block.dead_bytes} instead of {dead_bytes}, of {len(block.data)} bytes"
    if block.books == SEALED or (block.closed and block.room):
        yield f"it is accounted as {block.books}, with space for {block.room} bytes"


def _packed(block: EntryBlock) -> Iterator[str]:
    """Check what applies only to sealed blocks."""
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
    """Check what is open of a sealed block."""
    part, first, end, at = packed.data, packed.opened_from, packed.opened_to, packed.opened_at
    if part is None:
        return
    bodies = block.sealing.bodies
    _, data = bodies.load(packed, bodies.codec(packed.codec))
    starts = [*offsets_in(packed, data), packed.size]
    if not 0 <= first < end <= packed.count or (starts[first], starts[end]) != (at, at + len(part)):
        yield f"{len(part)} bytes from byte {at} on are open as the entries {first} to {end}"
    elif data[at : at + len(part)] != part:
        yield f"the bytes that are open as the entries {first} to {end} are others than the block's"
    if packed.rest is not None and (packed.wire is not None or len(part) == packed.size):
        yield "its compressed bytes are in memory twice, or not needed"


def _well_written(block: EntryBlock, at: int) -> bool:
    """Whether the bytes of an entry are exactly its id and its fields."""
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


def book_faults(keyspace: Keyspace) -> Iterator[str]:
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
    """Check that every blob is counted in its segment, once. Others may be counted that are still read."""
    found: dict[int, int] = {}
    for blob in blobs:
        found[blob.segment] = found.get(blob.segment, 0) + blob.place().size
    if len({blob.place() for blob in blobs}) < len(blobs):
        yield "two blobs are at the same place"
    counted = sealing.segments()
    for segment, live in found.items():
        if live > counted.get(segment, 0):
            yield f"segment {segment} has {live} live bytes, {counted.get(segment, 0)} are counted"
