"""Checks the files of a store and the state that they result in, and changes neither.

Rule 1. The directory is locked while it is checked: a server that used it would write at the same time.
Rule 2. Recovery stops at the first damaged record, so what follows it is not examined. A damaged blob concerns its
        own entries only, so all of them are examined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from headwater.engine.check import broken_invariants
from headwater.engine.entry_block import EntryBlock
from headwater.engine.keyspace import Keyspace
from headwater.errors import JournalDamaged, StoreUnusable
from headwater.journal.batches import JournalBatch
from headwater.journal.blobs import BlobPlace
from headwater.journal.files import Files
from headwater.journal.images import read_image
from headwater.journal.recovery import Recovery
from headwater.journal.report import Cut
from headwater.journal.segment_reader import SegmentReader
from headwater.persistence.applying import Applying
from headwater.persistence.source import SegmentSource

Progress = Callable[[str, int, int], None]
"""Receives what is being done, how many bytes or entries of it are done, and of how many."""


class UnreadableEntries(NamedTuple):
    """Entries on disk that cannot be read."""

    database: int
    stream: str
    first: str
    last: str
    entries: int
    reason: str


class StoreCheck(NamedTuple):
    """The result of checking a directory."""

    directory: str
    groups: int
    """Record groups that were applied after the image."""
    streams: int
    entries: int
    damage: str | None
    """Why the directory cannot be opened; None if it can."""
    unreadable: list[UnreadableEntries]
    weakened: list[str]
    """Damage of one of two copies: nothing is lost while the other one is whole."""
    cuts: list[Cut]
    """What the next start will cut off: the torn end that a crash left."""
    notes: list[str]
    """Anomalies without a known loss."""
    faults: list[str]
    """Violations of the rules of the engine in the recovered state."""

    @property
    def healthy(self) -> bool:
        """Whether the store opens and has all its entries. A torn end was never acknowledged as durable."""
        return self.damage is None and not (self.unreadable or self.weakened or self.faults)


def check_store(files: Files, progress: Progress = lambda *_: None) -> StoreCheck:
    """Check the store in a directory.

    Raises `StoreInUse` if a process uses it, and `StoreUnusable` if there is no store.
    """
    files.lock()
    try:
        return _check(files, progress)
    finally:
        files.unlock()


def _check(files: Files, progress: Progress) -> StoreCheck:
    where = files.path("").rstrip("/")
    result = StoreCheck(where, 0, 0, 0, None, [], [], [], [], [])
    try:
        recovery = Recovery(files)
        if recovery.is_empty and recovery.catalog.image is None:
            raise StoreUnusable(f"{where} has no store: neither a journal file nor an image")
        keyspace = _recovered(files, recovery, progress)
    except JournalDamaged as error:
        return result._replace(damage=str(error))
    blocks = list(blocks_of(keyspace))
    return result._replace(
        groups=recovery.groups,
        streams=len(keyspace.streams),
        entries=sum(stream.length for stream in keyspace.streams.values()),
        unreadable=(unreadable := list(_unreadable(blocks, progress))),
        weakened=list(_weakened(files, recovery.seed or 0, blocks)),
        cuts=recovery.cuts,
        notes=[*recovery.notes, *keyspace.unread_blobs],
        # The rules of unreadable blocks cannot be checked.
        faults=[] if unreadable else broken_invariants(keyspace),
    )


def _recovered(files: Files, recovery: Recovery, progress: Progress) -> Keyspace:
    image, seed = recovery.catalog.image, recovery.seed or 0
    applying = Applying(files, source=SegmentSource(files, seed), storing=False)
    total = recovery.most_bytes() + (0 if image is None else image.size)
    done = 0
    state: Iterator[JournalBatch] = iter(()) if image is None else read_image(files, image, seed)
    for batch in chain(state, recovery.batches()):
        applying.apply(batch)
        done += batch.ends[-1] - batch.starts[0]
        progress("bytes replayed", done, total)
    return applying.finish()


def blocks_of(keyspace: Keyspace) -> Iterator[tuple[int, bytes, EntryBlock]]:
    """Yield each block of a stream, with the database and the key."""
    for database in keyspace.databases:
        for key, value in database.values.items():
            log = getattr(value, "log", None)
            for block in () if log is None else log.blocks:
                yield database.index, key, block


def _weakened(
    files: Files, seed: int, blocks: list[tuple[int, bytes, EntryBlock]]
) -> Iterator[str]:
    reader = SegmentReader(files, seed)
    for _database, _key, block in blocks:
        if block.packed is not None and block.packed.blob is not None:
            yield from reader.flaws(BlobPlace(*block.packed.blob.place()))


def _unreadable(
    blocks: list[tuple[int, bytes, EntryBlock]], progress: Progress
) -> Iterator[UnreadableEntries]:
    """Read every block that is on disk; yield those that cannot be read."""
    stored = [one for one in blocks if one[2].packed is not None and one[2].packed.blob is not None]
    for number, (database, key, block) in enumerate(stored, 1):
        try:
            block.entries()
        except JournalDamaged as error:
            first, last = block.first(), (block.last_ms, block.last_seq)
            yield UnreadableEntries(
                database,
                key.decode("utf-8", "backslashreplace"),
                f"{first[0]}-{first[1]}",
                f"{last[0]}-{last[1]}",
                block.live,
                str(error),
            )
        progress("blocks read from disk", number, len(stored))
