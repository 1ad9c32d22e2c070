"""Lists the record groups of a store's journal, to find a change.

Rule 1. A group is shown with its facts by name (`headwater.engine.facts.facts`), and with the database and the key
        that each fact concerns. For this, the store is replayed: only a replay knows where a fact ends, and which
        stream had which number at that time.
Rule 2. The list begins after the oldest kept image (``journal-retention``). A server may use the directory.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headwater.common.names import text_of
from headwater.engine.replay.replay_steps import STEPS
from headwater.journal.disk.files import Files
from headwater.journal.disk.locks import BACKUP_LOCK_NAME, held_for_backup
from headwater.journal.format.batches import JournalBatch
from headwater.journal.format.failures import reading
from headwater.journal.format.records import GROUP_HEADER_BYTES
from headwater.journal.images.images import read_image
from headwater.journal.images.retention import oldest_past, read_all
from headwater.persistence.reading import Progress, StoreReader, silent

KINDS: Final = {kind: step.__name__[1:].replace("_", " ") for kind, step in STEPS.items()} | {
    0x20: "appended",
    0x21: "trimmed",
    0x22: "deleted",
    0x40: "delivered",
    0x41: "acknowledged",
    0x42: "owned",
    0x43: "released",
}
"""Kind of fact → name."""


class DumpedGroup(NamedTuple):
    """One record group. ``at_ms`` is the server's time, in Unix milliseconds. The group's header is at ``offset``
    in ``file``; ``bytes`` includes the header."""

    at_ms: int
    file: str
    offset: int
    bytes: int
    facts: dict[str, int]
    """Name of the kind of fact → number of these facts."""
    changes: list[DumpedChange]
    """The facts by kind, key and group, in the order of the first fact of each."""


class DumpedChange(NamedTuple):
    """Facts of one kind about one key. ``number`` counts them."""

    what: str
    database: int | None
    """Number of the database; None if the facts concern all databases, or none."""
    key: str | None
    """The key; None if the facts concern a whole database, or none."""
    group: str
    """The consumer group; empty if the facts concern none."""
    ids: Sequence[str]
    """Ids of the entries that were deleted, or of the last one that was trimmed; empty for other facts."""
    number: int


class JournalPart(NamedTuple):
    """Content of one journal file. The times are of its first and its last group, in Unix milliseconds."""

    file: str
    groups: int
    bytes: int
    first_ms: int
    last_ms: int


def dumped_groups(
    files: Files,
    *,
    from_ms: int = 0,
    to_ms: int | None = None,
    key: str | None = None,
    progress: Progress = silent,
) -> Iterator[DumpedGroup]:
    """Yield the record groups from ``from_ms`` to ``to_ms`` (Unix milliseconds; None: to the end), oldest first.
    With ``key``, yield only the groups that concern this key, or no single key.

    Raises `JournalDamaged` at a damaged place, and `StoreUnusable` if the directory has no store.
    """
    with reading(files), held_for_backup(files.path(BACKUP_LOCK_NAME)):
        store = StoreReader(files, progress, past=oldest_past(files), live=True)
        store.apply_image()
        for batch in store.of_journal():
            if batch.times[-1] < from_ms:
                store.applying.apply(batch)
                continue
            for group in _groups(batch, store):
                if to_ms is not None and group.at_ms > to_ms:
                    return
                if group.at_ms >= from_ms and (key is None or _concerns(group, key)):
                    yield group


def _groups(batch: JournalBatch, store: StoreReader) -> Iterator[DumpedGroup]:
    for one in store.applying.step_through(batch, concerns=True):
        names = [KINDS.get(kind, f"{kind:#04x}") for kind in one.kinds]
        changes = [
            DumpedChange(
                what,
                about.database,
                None if about.key is None else text_of(about.key),
                text_of(about.group),
                about.ids,
                number,
            )
            for (what, about), number in Counter(zip(names, one.concerns, strict=True)).items()
        ]
        size = len(one.facts) + GROUP_HEADER_BYTES
        place = batch.offset(one.place)
        yield DumpedGroup(one.now_ms, batch.name, place, size, dict(Counter(names)), changes)


def _concerns(group: DumpedGroup, key: str) -> bool:
    """Return whether a fact of the group concerns ``key``, or no single key."""
    return any(one.key in (key, None) for one in group.changes)


def journal_parts(files: Files, progress: Progress = silent) -> list[JournalPart]:
    """Read all images and the journal, and verify their checksums, without applying facts. Return a part per file.

    Raises the errors of `dumped_groups`.
    """
    found: dict[str, JournalPart] = {}
    with reading(files), held_for_backup(files.path(BACKUP_LOCK_NAME)):
        store = StoreReader(files, progress, past=oldest_past(files), live=True)
        for manifest in read_all(files):
            if manifest.image is not None:
                deque(read_image(files, manifest.image, store.seed), maxlen=0)
        for batch in store.of_journal():
            size = sum(batch.ends) - sum(batch.starts) + len(batch.starts) * GROUP_HEADER_BYTES
            before = found.get(batch.name)
            first = batch.times[0] if before is None else before.first_ms
            groups, total = (0, 0) if before is None else (before.groups, before.bytes)
            found[batch.name] = JournalPart(
                batch.name, groups + len(batch.times), total + size, first, batch.times[-1]
            )
    return list(found.values())
