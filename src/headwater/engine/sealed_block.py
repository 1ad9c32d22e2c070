"""The content of a sealed block: compressed bytes in memory, or a blob on disk.

    in memory   wire ──▶ the bytes, compressed              blob is None
    stored      blob ──▶ where they are on disk             wire is None
    in both     ids, as runs (packing.py); data and offsets while the block is open for reading (bodies.py)
                marks: where every `MARKED`-th entry begins, two bytes each

Rule. ``wire``, ``ids``, ``marks``, ``size`` and ``count`` never change: storing a block or changing its
entries replaces its `SealedBlock`. Only the place of ``blob`` may change.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.engine.blobs import Blob
from headwater.engine.codecs import Codec

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # packing_c.pxd has it in C
    from headwater.memory import offset_at
    from headwater.packing import index_entries, pass_entries, unpack_ids

MARKED = 16
"""An entry in the middle of a block is found by passing at most as many."""

_MARKS_BYTES = 2**16
"""The size of a block up to which two bytes are enough for the position of an entry."""


class SealedBlock:
    """What replaces bytes, ids and offsets of a block. It has ``count`` entries of ``size`` bytes, including
    tombstones. ``first_ms`` and ``first_seq`` are the id of the first live entry, 0-0 if it must be looked
    up. ``holds`` is how often it must stay open. ``marks`` is empty if they are not known: they are not on
    disk."""

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
        self.data: bytearray | None = None
        self.offsets: array[int] | None = None
        self.found = self.found_at = 0
        """Entry ``found`` begins at byte ``found_at``: the one that was searched for last."""
        self.blob: Blob | None = None
        self.holds = 0

    def copy(self) -> SealedBlock:
        """Return a copy for another block with the same bytes."""
        made = SealedBlock(self.codec, self.wire, self.ids, self.size, self.count, self.marks)
        if self.blob is not None:
            self.blob.shared = True
            made.blob = self.blob
        return made


class ColdBlocks(Exception):
    """A command needs blocks whose bodies are on disk, and may not wait for them.

    It is raised before the first mutator. The command must run again, from its start, after
    `Bodies.deliver` was called for ``wanted``. ``ahead`` are blocks that will probably be read next.
    """

    def __init__(self, wanted: list[SealedBlock], ahead: Sequence[SealedBlock] = ()) -> None:
        super().__init__(f"{len(wanted)} blocks are on disk")
        self.wanted = wanted
        self.ahead = ahead


def unpacked(packed: SealedBlock, codec: Codec, wire: bytes) -> bytearray:
    """Return the uncompressed bytes of a sealed block. ``wire`` are the compressed ones. Any thread may call
    this, with its own codec."""
    data = bytearray(codec.decompress(wire, packed.size))
    assert len(data) == packed.size, f"{len(data)} bytes instead of {packed.size}"
    return data


def unpacked_ids(packed: SealedBlock) -> array[int]:
    """Return the ids of a sealed block's entries, two words each."""
    ids: array[int] = array("Q")
    unpack_ids(packed.ids, packed.count, ids)
    return ids


def start_in(packed: SealedBlock, data: bytearray, index: int) -> int:
    """Return the offset of one entry in the uncompressed bytes. Readers go on where they have stopped, so the
    search begins at the entry that was searched for last, unless a marked one is nearer."""
    mark = index // MARKED
    if mark <= len(packed.marks) // 2 and (index < packed.found or packed.found < mark * MARKED):
        packed.found, packed.found_at = mark * MARKED, _marked(packed.marks, mark)
    elif index < packed.found:
        packed.found = packed.found_at = 0
    packed.found_at = pass_entries(data, packed.found_at, index - packed.found)
    packed.found = index
    return packed.found_at


def marks_of(offsets: array[int], size: int) -> bytes:
    """Return the marks of a block of ``size`` bytes whose entries begin at ``offsets``.

    >>> marks_of(array("I", range(0, 1000, 10)), 1000).hex(" ", 2)
    'a000 4001 e001 8002 2003 c003'
    """
    marks = bytearray()
    if size <= _MARKS_BYTES:
        for index in range(MARKED, len(offsets), MARKED):
            at = offset_at(offsets, index)
            marks.append(at & 255)
            marks.append(at >> 8)
    return bytes(marks)


def _marked(marks: bytes, mark: int) -> int:
    """Return the offset of entry ``mark * MARKED``."""
    return marks[2 * mark - 2] | marks[2 * mark - 1] << 8 if mark else 0


def offsets_in(packed: SealedBlock, data: bytearray) -> array[int]:
    """Return the offset of each entry in the uncompressed bytes. Reading a whole block does not need them, and
    they take half as long as the bytes."""
    offsets: array[int] = array("I")
    index_entries(data, offsets)
    assert len(offsets) == packed.count, f"{len(offsets)} entries instead of {packed.count}"
    return offsets
