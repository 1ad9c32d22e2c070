"""The bytes of sealed blocks while they are uncompressed for reading.

    a command chooses ──▶ hold(blocks) ─┬─▶ all are open until the next `hold` or `release`
                                        └─▶ ColdBlocks: a thread reads and calls `load`, then
                                            deliver ──▶ the command runs again ──▶ release

Rule 1. `resize` bounds the size of the blocks that stay open after they were read. The blocks held by or
        delivered to a command are open in addition, and so is the block opened last, until `release`. Blocks read
        once make room for blocks read again: at most `limits.READ_ONCE_BYTES` of the blocks read once stay open.
        So a scan does not close the blocks that others read, and reuses memory that the processor has cached.
Rule 2. A block whose bytes are in memory, compressed, can always be opened. One on disk is read here only
        if the system has it in memory, or if ``may_wait`` is set; otherwise `ColdBlocks` is raised.
Rule 3. A command calls `hold` once, for all blocks on disk that it reads, after it has chosen the entries and
        before its first mutator. Blocks that it opens one at a time later must be in memory.
Rule 4. Any thread may call `load`. All other methods must be called under the node's lock.
Rule 5. An open block belongs to the blocks of entries that refer to it. When any thread frees the last of
        them, the open block is freed too, which is only noted here (blobs.py, rule 2). So a block that is open
        for reading never keeps a segment on disk.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from weakref import ref

from headwater.common import limits
from headwater.engine.bodies.blobs import BlobPlace, BlobSource
from headwater.engine.bodies.codecs import Codec, codec_in
from headwater.engine.bodies.sealed_block import ColdBlocks, SealedBlock, unpack, unpacked

Opened = tuple[SealedBlock, bytes]
"""A block and the bytes of all its entries."""

Wanted = dict[SealedBlock, tuple[int, int]]
"""Blocks, each with the index of the first entry that is needed and the index after the last."""


class _Kept:
    """Open blocks that may be closed, with their bytes, oldest first."""

    def __init__(self) -> None:
        self.size = 0
        self._blocks: OrderedDict[ref[SealedBlock], int] = OrderedDict()

    def add(self, block: ref[SealedBlock], size: int) -> None:
        """Add a block as the newest."""
        self._blocks[block] = size
        self.size += size

    def take(self, block: ref[SealedBlock]) -> bool:
        """Remove a block. Return whether it was one of these blocks."""
        size: int = self._blocks.pop(block, 0)
        self.size -= size
        return size > 0

    def close_oldest(self, bound: int, but: int) -> None:
        """Close blocks until at most ``bound`` bytes are open. The newest ``but`` stay open."""
        while self.size > bound and len(self._blocks) > but:
            oldest, size = self._blocks.popitem(last=False)
            self.size -= size
            packed = oldest()
            if packed is not None:
                packed.close()


class Bodies:
    """The open blocks of a store."""

    def __init__(self) -> None:
        self.source: BlobSource | None = None
        """Reads blobs; None in a store without segments."""
        self.may_wait = True
        """True if the current command may wait for the disk."""
        self.most_bytes = limits.COLD_CACHE_BYTES
        self.opened_count = 0
        """Number of times that a sealed block was opened for reading."""
        self._codecs: dict[str, Codec] = {}
        self._once = _Kept()
        self._again = _Kept()
        """Blocks that were read once (``_once``), and blocks that were read again."""
        self._freed: deque[ref[SealedBlock]] = deque()
        """Blocks that were freed and are still counted (rule 5)."""
        self._note_freed = self._freed.append
        self.holding = False
        """True if `release` has work to do. After most commands it is False, so callers check it first."""
        self._held: list[SealedBlock] = []
        self._delivered: list[SealedBlock] = []

    # --- opening --------------------------------------------------------------------------------

    def open(self, packed: SealedBlock, first: int, end: int) -> None:
        """Open the entries ``first`` to ``end``-1 of ``packed``. Raises `ColdBlocks`."""
        if not self.try_open(packed, first, end):
            raise ColdBlocks([packed])

    def try_open(self, packed: SealedBlock, first: int, end: int) -> bool:
        """Open entries as `open` does, but return False if that would have to wait."""
        if packed.has_open(first, end):
            return True
        was_open = packed.data is not None
        if not self._read(packed, first, end):
            return False
        if not packed.holds:
            if was_open:
                self._take(packed)
            self._keep_open(packed)
            self._close_oldest(self.most_bytes, 1)
            self.holding |= self._once.size + self._again.size > self.most_bytes
        return True

    def hold(self, wanted: Wanted, missed: Iterable[SealedBlock] = ()) -> None:
        """Open the ``wanted`` entries and keep them open (rule 3). Raises `ColdBlocks` with the blocks of ``wanted``
        that are on disk, and the blocks ``missed``."""
        if self._held:
            self._let_go(self._held)
            self._close_oldest(self.most_bytes)
        cold = dict.fromkeys(missed) if missed else {}
        if self.may_wait and self.source is not None:
            self._read_ahead(wanted)
        for packed, (first, end) in wanted.items():
            was_open = packed.data is not None
            if packed.has_open(first, end) or self._read(packed, first, end):
                self._hold(packed, self._held, was_open)
            else:
                cold[packed] = None
        if cold:
            self._let_go(self._held)
            self._close_oldest(self.most_bytes)
            raise ColdBlocks(list(cold))

    def load(self, packed: SealedBlock, codec: Codec) -> Opened:
        """Read a block from disk, for `deliver`. Any thread may call this, with its own codec."""
        return packed, loaded(packed, codec, self.source)

    def deliver(self, opened: Sequence[Opened]) -> None:
        """Open loaded blocks, and keep them open until `release` is called."""
        for packed, data in opened:
            was_open = packed.data is not None
            if not was_open:
                self._note_opening(packed)
            if not packed.has_open(0, packed.count):
                packed.open_all(data)
            self._hold(packed, self._delivered, was_open)

    def release(self) -> None:
        """Stop holding the held and delivered blocks: the command has ended."""
        self._let_go(self._held)
        self._let_go(self._delivered)
        self._close_oldest(self.most_bytes)
        self.holding = False

    def ids(self, place: BlobPlace) -> bytes:
        """Return the packed ids of a blob, for replay. May wait for the disk. Raises `JournalDamaged`."""
        return self._source().ids(place)

    def codec(self, name: str) -> Codec:
        """Return a codec for the thread that has the node's lock. Raises `ValueError` if the codec is
        not installed."""
        found = self._codecs.get(name)
        return codec_in(self._codecs, name) if found is None else found

    # --- the bound ------------------------------------------------------------------------------

    def open_bytes(self) -> int:
        """Return the size of the open blocks that no command holds, in bytes."""
        if self._freed:
            self._forget_freed()
        return self._once.size + self._again.size

    def resize(self, most_bytes: int) -> None:
        """Set the maximum size of the blocks that stay open to ``most_bytes``, and close the oldest beyond it."""
        self.most_bytes = most_bytes
        self._close_oldest(self.most_bytes)

    def close_all(self) -> None:
        """Close all blocks that no command holds."""
        self._close_oldest(0)

    # --- parts ----------------------------------------------------------------------------------

    def _source(self) -> BlobSource:
        return _present(self.source)

    def _read_ahead(self, blocks: Iterable[SealedBlock]) -> None:
        places = [place_of(one) for one in blocks if one.data is None and one.wire is None]
        if len(places) > 1:
            self._source().read_ahead(places)

    def _read(self, packed: SealedBlock, first: int, end: int) -> bool:
        """Open the entries ``first`` to ``end``-1 of a block. Return False if that would have to wait."""
        wire = packed.wire if packed.rest is None else packed.rest
        if wire is None:
            source, place = self._source(), place_of(packed)
            wire = source.cached_body(place)
            if wire is None:
                if not self.may_wait:
                    return False
                wire = source.body(place)
        was_open = packed.data is not None
        unpack(packed, self.codec(packed.codec), wire, first, end)
        if not was_open:
            self._note_opening(packed)
        return True

    def _note_opening(self, packed: SealedBlock) -> None:
        """Count an opening. The block counts as read again if the number of openings since its last one is at most
        the number of blocks of its size that may stay open."""
        self.opened_count += 1
        since = self.opened_count - packed.opened
        packed.again = packed.opened > 0 and since <= self.most_bytes // packed.size
        packed.opened = self.opened_count

    def _hold(self, packed: SealedBlock, held: list[SealedBlock], was_open: bool) -> None:
        if was_open and not packed.holds:
            self._take(packed)
            packed.again = packed.again or packed.opened < self.opened_count
        packed.holds += 1
        held.append(packed)
        self.holding = True

    def _take(self, packed: SealedBlock) -> None:
        """Remove an open block from the blocks that may be closed."""
        found = ref(packed)
        if not self._once.take(found):
            self._again.take(found)

    def _let_go(self, held: list[SealedBlock]) -> None:
        for packed in held:
            packed.holds -= 1
            if not packed.holds:
                self._keep_open(packed)
        held.clear()

    def _keep_open(self, packed: SealedBlock) -> None:
        kept = self._again if packed.again else self._once
        kept.add(ref(packed, self._note_freed), packed.open_bytes())

    def _forget_freed(self) -> None:
        while self._freed:
            freed = self._freed.popleft()
            if not self._once.take(freed):
                self._again.take(freed)

    def _close_oldest(self, bound: int, but: int = 0) -> None:
        """Close blocks until at most ``bound`` bytes are open. The newest ``but`` of each kind stay open. Blocks read
        once get what the others leave of ``bound``, at least a quarter, and at most `limits.READ_ONCE_BYTES`."""
        self._forget_freed()
        most = limits.READ_ONCE_BYTES
        once = min(most, max(bound - self._again.size, bound // 4))
        self._once.close_oldest(once, but)
        self._again.close_oldest(bound - self._once.size, but)


def loaded(packed: SealedBlock, codec: Codec, source: BlobSource | None) -> bytes:
    """Return the bytes of a sealed block, which may be on disk. Any thread may call this, with its own codec. May
    raise `JournalDamaged`."""
    wire = packed.wire
    if wire is None:
        wire = _present(source).body(place_of(packed))
    return unpacked(packed, codec, wire)


def _present(source: BlobSource | None) -> BlobSource:
    if source is None:
        raise RuntimeError("the store has blocks on disk, and nothing to read them with")
    return source


def place_of(packed: SealedBlock) -> BlobPlace:
    """Return the place of a stored block."""
    assert packed.blob is not None
    place: BlobPlace = packed.blob.place()
    return place
