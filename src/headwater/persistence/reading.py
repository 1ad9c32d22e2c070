"""Reads a store without changing it: for checks, histories and repairs.

    image ──┐
            ├── batches ──▶ Applying ──▶ Keyspace
    journal ┘

Unlike `replaying`, it needs no `Journal`, which makes the files writable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from headwater.common.collector import collector_off
from headwater.engine.bodies.blobs import BlobPlace
from headwater.engine.entries.entry_block import EntryBlock
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from headwater.errors import JournalDamaged, StoreUnusable
from headwater.journal.disk.files import Files
from headwater.journal.format.batches import JournalBatch
from headwater.journal.format.manifest import StoreManifest
from headwater.journal.images.catalog import Catalog
from headwater.journal.images.images import read_image
from headwater.journal.images.retention import past_before
from headwater.journal.log.recovery import Recovery
from headwater.journal.segments.segments import segment_name
from headwater.persistence.applying import Applying
from headwater.persistence.source import SegmentSource

Progress = Callable[[str, int, int], None]
"""Function that receives the current activity, the number of units (such as bytes) done, and their total."""

Key = tuple[int, bytes]
"""A database and a key."""


class LostEntries(NamedTuple):
    """Entries of a stream that cannot be read or would be lost by a repair. ``first`` and ``last`` are ids."""

    database: int
    stream: str
    first: str
    last: str
    entries: int
    reason: str


def silent(_what: str, _done: int, _total: int) -> None:
    """Show no progress."""


class StoreReader:
    """Reads the image and the journal of a directory, each once and in this order: the current image, or that of
    ``past`` (`headwater.journal.images.retention`). With ``live``, a server may use the directory meanwhile.

    The constructor and the methods raise `JournalDamaged`, and the constructor `StoreUnusable` if the directory
    has no store.
    """

    def __init__(
        self,
        files: Files,
        progress: Progress = silent,
        *,
        past: StoreManifest | None = None,
        live: bool = False,
    ) -> None:
        self.recovery = Recovery(files, Catalog(files, past))
        if live:
            self.recovery.end_here()
        self.image = self.recovery.catalog.image
        if self.recovery.is_empty and self.image is None:
            where = files.path("").rstrip("/")
            raise StoreUnusable(f"{where} has no store: neither a journal file nor an image")
        self.seed = self.recovery.seed or 0
        self.applying = Applying(files, source=SegmentSource(files, self.seed))
        self._files = files
        self._progress = progress
        self._done = 0
        self._total = self.recovery.most_bytes() + (0 if self.image is None else self.image.size)

    def apply_image(self) -> None:
        """Apply the image, if the store has one."""
        if self.image is not None:
            for batch in self._counted(read_image(self._files, self.image, self.seed)):
                self.applying.apply(batch)

    def of_journal(self) -> Iterator[JournalBatch]:
        """Yield the batches of the journal."""
        yield from self._counted(self.recovery.batches())

    def _counted(self, batches: Iterator[JournalBatch]) -> Iterator[JournalBatch]:
        for batch in batches:
            yield batch
            self._done += batch.ends[-1] - batch.starts[0]
            self._progress("bytes replayed", self._done, self._total)


def keyspace_at(files: Files, at_ms: int) -> Keyspace:
    """Return the state that a store had at ``at_ms``, Unix milliseconds: the state before the first record group of
    a later time. Blobs are read from ``files`` later.

    Raises `JournalDamaged`, and `StoreUnusable` if the kept history does not reach back to ``at_ms``.
    """
    store = StoreReader(files, past=past_before(files, at_ms))
    with collector_off():
        store.apply_image()
        for batch in store.of_journal():
            part = batch.until(at_ms)
            if part.times:
                store.applying.apply(part)
            if len(part.times) < len(batch.times):
                break
    return store.applying.finish()


def streams_of(keyspace: Keyspace) -> Iterator[tuple[Key, StoredStream]]:
    """Yield each stream with its database and key."""
    for database in keyspace.databases:
        for key, value in database.values.items():
            if isinstance(value, StoredStream):
                yield (database.index, key), value


def stored_blocks(keyspace: Keyspace) -> list[tuple[Key, EntryBlock]]:
    """Return the blocks that are on disk, each with the database and key of its stream."""
    return [
        (key, block)
        for key, stream in streams_of(keyspace)
        for block in stream.log.blocks
        if block.packed is not None and block.packed.blob is not None
    ]


def place_of(block: EntryBlock) -> BlobPlace:
    """Return the place of a block on disk."""
    assert block.packed is not None
    assert block.packed.blob is not None
    return block.packed.blob.place()


def unreadable_blocks(
    blocks: Sequence[tuple[Key, EntryBlock]], progress: Progress = silent
) -> Iterator[tuple[Key, EntryBlock, str]]:
    """Read every block that is on disk; yield those that cannot be read, with the reason."""
    for number, (key, block) in enumerate(blocks, 1):
        try:
            block.entries()
        except JournalDamaged as error:
            yield key, block, str(error)
        progress("blocks read from disk", number, len(blocks))


def refuse_unreadable(files: Files, blocks: Iterable[tuple[Key, EntryBlock]]) -> None:
    """Raise `PermissionError` if this user may not read a segment of ``blocks``: the segment may be undamaged."""
    for number in sorted({place_of(block).segment for _key, block in blocks}):
        with contextlib.suppress(FileNotFoundError):
            files.reads.size(segment_name(number))
