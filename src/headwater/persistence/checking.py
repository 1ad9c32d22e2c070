"""Checks the files of a store and the state that they result in, and changes neither.

Rule 1. The directory is locked while it is checked: a server that used it would write at the same time.
Rule 2. Recovery stops at the first damaged record, so what follows it is not examined. A damaged blob concerns its
        own entries only, so all of them are examined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from headwater.engine.check import broken_invariants
from headwater.engine.entry_block import EntryBlock
from headwater.errors import JournalDamaged
from headwater.journal.failures import reading
from headwater.journal.files import Files
from headwater.journal.report import Cut
from headwater.journal.segment_reader import SegmentReader
from headwater.persistence.reading import Key, Progress, StoreReader, silent, stored_blocks


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


def check_store(files: Files, progress: Progress = silent) -> StoreCheck:
    """Check the store in a directory.

    Raises `StoreInUse` if a process uses it, and `StoreUnusable` if there is no store.
    """
    files.lock_to_read()
    try:
        with reading(files):
            return _check(files, progress)
    finally:
        files.unlock()


def _check(files: Files, progress: Progress) -> StoreCheck:
    where = files.path("").rstrip("/")
    result = StoreCheck(where, 0, 0, 0, None, [], [], [], [], [])
    try:
        store = StoreReader(files, progress)
        for batch in chain(store.of_image(), store.of_journal()):
            store.applying.apply(batch)
    except JournalDamaged as error:
        return result._replace(damage=str(error))
    recovery, keyspace = store.recovery, store.applying.finish()
    blocks = stored_blocks(keyspace)
    return result._replace(
        groups=recovery.groups,
        streams=len(keyspace.streams),
        entries=sum(stream.length for stream in keyspace.streams.values()),
        unreadable=(unreadable := list(_unreadable(blocks, progress))),
        weakened=list(_weakened(SegmentReader(files, store.seed), blocks)),
        cuts=recovery.cuts,
        notes=[*recovery.notes, *keyspace.unread_blobs],
        # The rules of unreadable blocks cannot be checked.
        faults=[] if unreadable else broken_invariants(keyspace),
    )


def refuse_unreadable(error: JournalDamaged) -> None:
    """Raise the cause of ``error`` if that is a missing right: what this user may not read need not be damaged."""
    if isinstance(error.__cause__, PermissionError):
        raise error.__cause__


def _weakened(reader: SegmentReader, blocks: Sequence[tuple[Key, EntryBlock]]) -> Iterator[str]:
    for _key, block in blocks:
        assert block.packed is not None
        assert block.packed.blob is not None
        yield from reader.flaws(block.packed.blob.place())


def _unreadable(
    blocks: Sequence[tuple[Key, EntryBlock]], progress: Progress
) -> Iterator[UnreadableEntries]:
    """Read every block that is on disk; yield those that cannot be read."""
    for number, ((database, key), block) in enumerate(blocks, 1):
        try:
            block.entries()
        except JournalDamaged as error:
            refuse_unreadable(error)
            first, last = block.first(), (block.last_ms, block.last_seq)
            yield UnreadableEntries(
                database,
                key.decode("utf-8", "backslashreplace"),
                f"{first[0]}-{first[1]}",
                f"{last[0]}-{last[1]}",
                block.live,
                str(error),
            )
        progress("blocks read from disk", number, len(blocks))
