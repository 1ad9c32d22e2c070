"""The bytes of sealed blocks while they are uncompressed for reading.

    a command chooses ──▶ hold(blocks) ─┬─▶ all are open until the next `hold` or `release`
                                        └─▶ ColdBlocks: a thread reads and calls `load`, then
                                            deliver ──▶ the command runs again ──▶ release

Rule 1. `resize` bounds what stays open after it was read. The blocks of one command, held or delivered, are
        open in addition, and so is the one that was opened last until `release`.
Rule 2. A block whose bytes are in memory, compressed, can always be opened. One on disk is read here only
        if the system has it in memory, or if ``may_wait`` is set; otherwise `ColdBlocks` is raised.
Rule 3. A command calls `hold` once, for all blocks on disk that it reads, after it has chosen and before
        its first mutator. What it opens one at a time later must be in memory.
Rule 4. All methods are called under the node's lock. `load` may be called by any thread.
Rule 5. An open block belongs to the blocks of entries that have it. When the last of them is freed, by any
        thread, it is freed too; here that is only noted (blobs.py, rule 2). So nothing that is open for
        reading keeps a segment on disk.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from weakref import ref

from headwater import limits
from headwater.engine.blobs import BlobPlace, BlobSource
from headwater.engine.codecs import Codec, codec_in
from headwater.engine.sealed_block import ColdBlocks, SealedBlock, unpacked

Opened = tuple[SealedBlock, bytearray]
"""A block and its bytes."""


class Bodies:
    """The open blocks of a store."""

    def __init__(self) -> None:
        self.source: BlobSource | None = None
        """Reads blobs; None in a store that has none."""
        self.may_wait = True
        """Whether the current command may wait for the disk."""
        self.most_bytes = limits.COLD_CACHE_BYTES
        self.opened_count = 0
        """How often a sealed block was opened for reading."""
        self._codecs: dict[str, Codec] = {}
        self._open: OrderedDict[ref[SealedBlock], int] = OrderedDict()
        """Those that may be closed, with their bytes, oldest first."""
        self._freed: deque[ref[SealedBlock]] = deque()
        """Those that were freed and are still counted (rule 5)."""
        self._open_bytes = 0
        self.holding = False
        """Whether `release` closes blocks. After most commands it does not, and their caller asks this first."""
        self._held: list[SealedBlock] = []
        self._delivered: list[SealedBlock] = []

    # --- opening --------------------------------------------------------------------------------

    def open(self, packed: SealedBlock) -> None:
        """Set the data of ``packed``. Raises `ColdBlocks`."""
        if not self.try_open(packed):
            raise ColdBlocks([packed])

    def try_open(self, packed: SealedBlock) -> bool:
        """Set the data of ``packed``. Returns False if that would have to wait."""
        if packed.data is not None:
            return True
        wire = packed.wire
        if wire is None:
            source, place = self._source(), place_of(packed)
            wire = source.cached_body(place)
            if wire is None:
                if not self.may_wait:
                    return False
                wire = source.body(place)
        self._set(packed, unpacked(packed, self.codec(packed.codec), wire))
        self._keep_open(packed)
        self._close_oldest(but=1)
        self.holding |= self._open_bytes > self.most_bytes
        return True

    def hold(self, blocks: Iterable[SealedBlock], missed: Iterable[SealedBlock] = ()) -> None:
        """Open ``blocks`` and keep them open (rule 3). Raises `ColdBlocks` with those among them and in
        ``missed`` that are on disk."""
        self._let_go(self._held)
        cold = dict.fromkeys(missed)
        if self.may_wait and self.source is not None:
            self._read_ahead(blocks)
        for packed in blocks:
            if self.try_open(packed):
                self._hold(packed, self._held)
            else:
                cold[packed] = None
        if cold:
            self._let_go(self._held)
            raise ColdBlocks(list(cold))

    def load(self, packed: SealedBlock, codec: Codec) -> Opened:
        """Read a block from disk, for `deliver`. Any thread may call this, with its own codec."""
        return packed, loaded(packed, codec, self.source)

    def deliver(self, opened: Sequence[Opened]) -> None:
        """Open blocks that were loaded, until `release` is called."""
        for packed, data in opened:
            if packed.data is None:
                self._set(packed, data)
            self._hold(packed, self._delivered)

    def release(self) -> None:
        """Let go of what is held or delivered: the command has ended."""
        self._let_go(self._held)
        self._let_go(self._delivered)
        self._close_oldest()
        self.holding = False

    def ids(self, place: BlobPlace) -> bytes:
        """Return the packed ids of a blob, for replay. May wait for the disk. Raises `JournalDamaged`."""
        return self._source().ids(place)

    def codec(self, name: str) -> Codec:
        """Return a codec for the thread that has the node's lock. Raises `ValueError` if it is not
        installed."""
        return codec_in(self._codecs, name)

    # --- the bound ------------------------------------------------------------------------------

    def open_bytes(self) -> int:
        """Return the bytes of open blocks that no command holds."""
        if self._freed:
            self._forget_freed()
        return self._open_bytes

    def resize(self, most_bytes: int) -> None:
        """Let at most ``most_bytes`` stay open, from now on."""
        self.most_bytes = most_bytes
        self._close_oldest()

    def close_all(self) -> None:
        """Close all blocks that no command holds."""
        self._close_oldest(most_bytes=0)

    # --- parts ----------------------------------------------------------------------------------

    def _source(self) -> BlobSource:
        return _present(self.source)

    def _read_ahead(self, blocks: Iterable[SealedBlock]) -> None:
        places = [place_of(one) for one in blocks if one.data is None and one.wire is None]
        if len(places) > 1:
            self._source().read_ahead(places)

    def _set(self, packed: SealedBlock, data: bytearray) -> None:
        packed.data = data
        self.opened_count += 1

    def _hold(self, packed: SealedBlock, held: list[SealedBlock]) -> None:
        self._open_bytes -= self._open.pop(ref(packed), 0)
        packed.holds += 1
        held.append(packed)
        self.holding = True

    def _let_go(self, held: list[SealedBlock]) -> None:
        for packed in held:
            packed.holds -= 1
            if not packed.holds:
                self._keep_open(packed)
        if held:
            held.clear()
            self._close_oldest()

    def _keep_open(self, packed: SealedBlock) -> None:
        self._open[ref(packed, self._freed.append)] = packed.size
        self._open_bytes += packed.size

    def _forget_freed(self) -> None:
        while self._freed:
            self._open_bytes -= self._open.pop(self._freed.popleft(), 0)

    def _close_oldest(self, *, but: int = 0, most_bytes: int | None = None) -> None:
        """Close blocks until the bound is kept. The newest ``but`` stay open."""
        self._forget_freed()
        bound = self.most_bytes if most_bytes is None else most_bytes
        while self._open_bytes > bound and len(self._open) > but:
            oldest, size = self._open.popitem(last=False)
            self._open_bytes -= size
            packed = oldest()
            if packed is not None:
                packed.data = packed.offsets = None


def loaded(packed: SealedBlock, codec: Codec, source: BlobSource | None) -> bytearray:
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
