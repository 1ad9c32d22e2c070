"""The content of a sealed block: compressed bytes in memory, or a blob on disk.

    in memory   wire ──▶ the bytes, compressed              blob is None
    stored      blob ──▶ their place on disk                wire is None
    in both     ids, as runs (packing.py); data and offsets while the block is open for reading (bodies.py)
                marks: offset of every `MARKED`-th entry, two bytes each

    body   ┌───────┬───────────┬───────────┬───────┬───────┐      a frame is some of the entries, compressed;
           │ parts │ of part 1 │ of part 2 │ frame │ frame │      a small block is one frame without a table, a
           └───────┴───────────┴───────────┴───────┴───────┘      larger one has two or three parts (`body_of`)
            u8      first entry u16, its offset u16, size of the frame u16; little-endian

Rule 1. ``wire``, ``ids``, ``marks``, ``size`` and ``count`` never change: storing a block replaces its
        `SealedBlock`, and compacting a block removes it. Only the place of ``blob`` may change.
Rule 2. ``data`` begins and ends where parts do: it has the entries ``opened_from`` to ``opened_to``-1, and its
        first byte is byte ``opened_at`` of the block. As long as parts are missing, ``rest`` is the body.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct

from headwater.common import limits
from headwater.engine.bodies.blobs import Blob
from headwater.engine.bodies.codecs import NONE, Codec
from headwater.native.memory import Text

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # packing_c.pxd has it in C
    from headwater.native.memory import offset_at
    from headwater.native.packing import index_entries, pass_entries, unpack_ids

MARKED = 8
"""Number of entries from one mark to the next. Finding an entry within a block passes at most this many."""

_MARKS_BYTES = 2**16
"""Maximum size of a block in which two bytes are enough for the offset of an entry."""

_PARTS = 3
"""Number of parts of a large body. With two, zstd takes a tenth longer to read a hundred of 270 entries; with four,
it takes as long as with three and needs more space."""
_PARTS_MOST = 7
"""Maximum number of parts. No frame of zlib or zstd begins with a byte of this value or less."""
_ROW = Struct("<3H")
_ROW_BYTES = 6


class SealedBlock:
    """Replaces bytes, ids and offsets of a block: ``count`` entries, including tombstones, of ``size`` bytes in all.
    ``first_ms`` and ``first_seq`` are the id of the first live entry, 0-0 if it must be looked up. ``holds`` counts the
    reasons to stay open. ``marks`` is empty if unknown, because marks are not on disk."""

    def __init__(
        self,
        codec: str,
        wire: bytes | None,
        ids: bytes,
        size: int,
        count: int,
        marks: bytes = b"",
    ) -> None:
        self.codec = codec
        self.wire = wire
        self.ids = ids
        self.marks = marks
        self.size = size
        self.count = count
        self.first_ms = self.first_seq = 0
        self.data: bytes | None = None
        self.rest: bytes | None = None
        self.opened_from = self.opened_to = self.opened_at = 0
        self.offsets: array[int] | None = None
        """Offsets of all entries. None unless ``data`` has all entries."""
        self.found = self.found_at = 0
        """Entry ``found``, which was searched for last, begins at byte ``found_at`` of the block."""
        self.blob: Blob | None = None
        self.holds = self.opened = 0
        """``opened`` is the number of this block's last opening among all in the store; 0 if it was never open."""
        self.again = False
        """True if it was read again after others were opened (bodies.py, rule 1)."""

    def copy(self) -> SealedBlock:
        """Return a copy for another block with the same bytes."""
        made = SealedBlock(self.codec, self.wire, self.ids, self.size, self.count, self.marks)
        if self.blob is not None:
            self.blob.shared = True
            made.blob = self.blob
        return made

    def has_open(self, first: int, end: int) -> bool:
        """Return whether the entries ``first`` to ``end``-1 are open."""
        return self.data is not None and self.opened_from <= first and end <= self.opened_to

    def open_all(self, data: bytes) -> None:
        """Set the bytes of all entries."""
        self.data, self.rest = data, None
        self.opened_from, self.opened_to, self.opened_at = 0, self.count, 0

    def open_bytes(self) -> int:
        """Return the number of bytes that the block takes because it is open."""
        size = 0 if self.data is None else len(self.data)
        return size if self.rest is None else size + len(self.rest)

    def close(self) -> None:
        """Forget the bytes that are open."""
        self.data = self.offsets = self.rest = None


class ColdBlocks(Exception):
    """A command needs blocks whose bodies are on disk, and may not wait for them.

    It is raised before the first mutator. The command must run again, from its start, after
    `Bodies.deliver` was called for ``wanted``. ``ahead`` are blocks that will probably be read next.
    """

    def __init__(self, wanted: list[SealedBlock], ahead: Sequence[SealedBlock] = ()) -> None:
        super().__init__(f"{len(wanted)} blocks are on disk")
        self.wanted = wanted
        self.ahead = ahead


def body_of(data: bytearray, marks: bytes, codec: Codec) -> bytes:
    """Return the body for the bytes of a closed block: parts of about the same size, or one frame. Any thread may
    call this, with its own codec."""
    size = len(data)
    starts = {0: 0}  # of parts: index of an entry → its offset
    wanted = min(_PARTS, size // limits.PART_LEAST_BYTES)
    for part in range(1, wanted):
        mark = _nearest(marks, size * part // wanted)
        if mark:
            starts[mark * MARKED] = _marked(marks, mark)
    if len(starts) == 1:
        return codec.compress(data)
    ends = [*starts.values(), size][1:]
    frames = [codec.compress(data[at:end]) for at, end in zip(starts.values(), ends, strict=True)]
    rows = [
        _ROW.pack(entry, at, len(frame))
        for (entry, at), frame in zip(starts.items(), frames, strict=True)
    ]
    return b"".join((bytes([len(frames)]), *rows, *frames))


def _nearest(marks: bytes, offset: int) -> int:
    """Return the number of the mark that is nearest to an offset, or 0 if no mark is."""
    known = range(1, len(marks) // 2 + 1)
    return min(known, key=lambda mark: abs(_marked(marks, mark) - offset), default=0)


def unpack(packed: SealedBlock, codec: Codec, body: bytes, first: int, end: int) -> None:
    """Open the parts of a block that contain the entries ``first`` to ``end``-1, and those between them and
    the open ones."""
    if packed.data is not None:
        first, end = min(first, packed.opened_from), max(end, packed.opened_to)
    parts = parts_in(packed, body)
    if parts == 0:
        data = codec.decompress(body, packed.size)
        assert len(data) == packed.size, f"{len(data)} bytes instead of {packed.size}"
        packed.open_all(data)
    else:
        _unpack_parts(packed, codec, body, parts, first, end)
        whole = packed.opened_from == 0 and packed.opened_to == packed.count
        packed.rest = None if whole or packed.wire is not None else body
    packed.found, packed.found_at = packed.opened_from, packed.opened_at


def unpacked(packed: SealedBlock, codec: Codec, body: bytes) -> bytes:
    """Return the uncompressed bytes of all entries, without using the open ones. Any thread may call this, with its
    own codec."""
    whole = SealedBlock(packed.codec, None, b"", packed.size, packed.count)
    unpack(whole, codec, body, 0, packed.count)
    assert whole.data is not None
    return whole.data


def parts_in(packed: SealedBlock, body: bytes) -> int:
    """Return the number of parts, 0 if the body is one frame."""
    return body[0] if packed.codec != NONE and body and body[0] <= _PARTS_MOST else 0


def _unpack_parts(
    packed: SealedBlock, codec: Codec, body: bytes, parts: int, first: int, end: int
) -> None:
    """Open entries as `unpack` does, from a body of several parts. Changes nothing if that fails."""
    before = packed.data
    pieces: list[bytes] = []
    opened_from = opened_to = opened_at = 0
    rows_end = frame_at = 1 + _ROW_BYTES * parts
    for row in range(1, rows_end, _ROW_BYTES):
        entry, at, size = _u16(body, row), _u16(body, row + 2), _u16(body, row + 4)
        next_entry, next_at = packed.count, packed.size
        if row + _ROW_BYTES < rows_end:
            next_entry, next_at = _u16(body, row + _ROW_BYTES), _u16(body, row + _ROW_BYTES + 2)
        if next_entry > first and entry < end:
            if not pieces:
                opened_from, opened_at = entry, at
            if (
                before is not None
                and packed.opened_from <= entry
                and next_entry <= packed.opened_to
            ):
                piece = before[at - packed.opened_at : next_at - packed.opened_at]
            else:
                piece = codec.decompress(body[frame_at : frame_at + size], next_at - at)
            assert len(piece) == next_at - at, f"{len(piece)} bytes instead of {next_at - at}"
            pieces.append(piece)
            opened_to = next_entry
        frame_at += size
    packed.data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    packed.opened_from, packed.opened_to, packed.opened_at = opened_from, opened_to, opened_at


def _u16(text: bytes, at: int) -> int:
    return text[at] | text[at + 1] << 8


def unpacked_ids(packed: SealedBlock) -> array[int]:
    """Return the ids of a sealed block's entries, two words each."""
    ids: array[int] = array("Q")
    unpack_ids(packed.ids, packed.count, ids)
    return ids


def start_in(packed: SealedBlock, index: int) -> int:
    """Return the offset in the block at which entry ``index`` begins. This entry or the one before must be open.
    Readers continue where they stopped, so the search begins at the entry that was searched for last,
    unless a marked entry is nearer."""
    assert packed.data is not None
    if index < packed.found:
        packed.found, packed.found_at = packed.opened_from, packed.opened_at
    mark = index // MARKED
    if packed.found < mark * MARKED and mark <= len(packed.marks) // 2:
        packed.found, packed.found_at = mark * MARKED, _marked(packed.marks, mark)
    passed = pass_entries(packed.data, packed.found_at - packed.opened_at, index - packed.found)
    packed.found, packed.found_at = index, packed.opened_at + passed
    return packed.found_at


def marks_of(offsets: array[int], size: int) -> bytes:
    """Return the marks of a block of ``size`` bytes whose entries begin at ``offsets``.

    >>> marks_of(array("I", range(0, 1000, 10)), 1000).hex(" ", 2)
    '5000 a000 f000 4001 9001 e001 3002 8002 d002 2003 7003 c003'
    """
    marks = bytearray()
    if size <= _MARKS_BYTES:
        for index in range(MARKED, len(offsets), MARKED):
            at = offset_at(offsets, index)
            marks.append(at & 255)
            marks.append(at >> 8)
    return bytes(marks)


def _marked(marks: bytes, mark: int) -> int:
    """Return the offset of entry ``mark * MARKED``, which is not the first."""
    return _u16(marks, 2 * mark - 2)


def offsets_in(packed: SealedBlock, data: Text) -> array[int]:
    """Return the offset of each entry in the uncompressed bytes. Reading a whole block does not need offsets, and
    computing them takes half as long as decompressing the bytes."""
    offsets: array[int] = array("I")
    index_entries(data, offsets)
    assert len(offsets) == packed.count, f"{len(offsets)} entries instead of {packed.count}"
    return offsets
