"""Repairs a copy of a damaged store, and reports beforehand what the repair would lose.

Rule 1. Only the copy is changed. It has everything that can be read without doubt: the state before the first
        damaged record of the journal, without entries on disk that cannot be read.
Rule 2. Records after a damaged one are lost, because they may depend on it. To report the loss, they are applied
        to a separate state as far as possible. So is a damaged record that is whole, but cannot be applied.
Rule 3. The repaired copy is recovered once, without changing it, before the repair counts as done.
Rule 4. A damaged MANIFEST, image or file header cannot be repaired: the content of the store is unknown. Use a backup.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.common.model import MAX_U64
from headwater.common.names import text_of
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.errors import JournalDamaged, StoreUnusable
from headwater.journal.disk.files import DiskFiles, Files
from headwater.journal.format.failures import reading, without_remedy
from headwater.journal.format.manifest import read_manifest
from headwater.journal.format.names import JournalFile, file_name, journal_numbers
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    Group,
    Synced,
    find_group,
    read_file_header,
    read_groups,
)
from headwater.persistence.backup import back_up, end_journal
from headwater.persistence.reading import (
    LostEntries,
    Progress,
    StoreReader,
    refuse_unreadable,
    silent,
    stored_blocks,
    streams_of,
    unreadable_blocks,
)


class RepairPlan(NamedTuple):
    """The effect of a repair."""

    directory: str
    damage: str | None
    """Description of the damage at which the journal would end; None if the journal is whole."""
    cut: Synced | None
    """Place at which the journal would end; None if the journal is whole."""
    lost: list[LostEntries]
    changes: int
    """Number of record groups after the damage that would be lost: all commands, not only added entries."""
    unreadable: list[tuple[int, bytes, list[bytes]]]
    """Database, key and ids of entries on disk that would be deleted, because they cannot be read."""

    @property
    def needed(self) -> bool:
        """True if the store needs a repair."""
        return self.cut is not None or bool(self.unreadable)


def plan_repair(directory: Path) -> RepairPlan:
    """Return what a repair of the store in ``directory`` would do and lose. Changes nothing.

    Raises `StoreInUse`, and `StoreUnusable` or `JournalDamaged` if the store cannot be repaired (rule 4), or if one of
    its codecs is not installed.
    """
    files = DiskFiles(directory)
    files.lock_to_read()
    try:
        with reading(files):
            return _plan(files, str(directory))
    finally:
        files.unlock()


def repair_to(plan: RepairPlan, directory: Path, destination: Path, progress: Progress) -> None:
    """Copy the store to ``destination``, which must be empty or missing, and end its journal as planned.

    The caller must then delete the entries in ``plan.unreadable`` with commands. Raises the errors of `back_up`, and
    `StoreUnusable` if the repaired copy cannot be opened.
    """
    back_up(directory, destination, progress)
    files = DiskFiles(destination)
    files.lock()
    try:
        if plan.cut is not None:
            manifest = read_manifest(files)
            assert manifest is not None, "it was copied"
            end_journal(files, manifest, plan.cut)
        _recovered(files, progress=progress)
    except (JournalDamaged, StoreUnusable) as error:
        raise StoreUnusable(
            f"{destination} cannot be opened after the repair: {without_remedy(error)}. Remove it, and restore a "
            f"backup; {directory} is unchanged"
        ) from error
    finally:
        files.unlock()


def _plan(files: Files, directory: str) -> RepairPlan:
    store = StoreReader(files)
    store.apply_image()
    damage, cut, turn = None, None, 0
    try:
        for batch in store.of_journal():
            store.applying.apply(batch)
    except JournalDamaged as error:
        damage, recovery, failed = str(error), store.recovery, store.applying.failed
        end, turn = (recovery.end, recovery.last_turn) if failed is None else failed
        cut = Synced(recovery.current.number, end)
    if store.applying.failed is not None:  # a part of its facts may have been applied
        store = _recovered(files, cut)
    keyspace = store.applying.finish()
    refuse_unreadable(files, stored_blocks(keyspace))
    unreadable, lost = _unreadable(keyspace)
    changes = 0
    if cut is not None:
        # By number: a record after the damage may rename a stream, or create another one with the same key.
        before = {stream.sid: stream.last_id for _key, stream in streams_of(keyspace)}
        for place, group in _later(files, cut, turn, store.seed):
            changes += place != cut
            with contextlib.suppress(Exception):  # it may depend on the damaged record
                Replay(keyspace).apply(group.facts, group.now_ms)
        lost += _added(keyspace, before)
    return RepairPlan(directory, damage, cut, lost, changes, unreadable)


def _recovered(files: Files, end: Synced | None = None, progress: Progress = silent) -> StoreReader:
    """Return a reader that has applied the image and the journal, or the part of them before the group at ``end``."""
    store = StoreReader(files, progress)
    store.apply_image()
    for batch in store.of_journal():
        count = len(batch.starts)
        if end is not None and store.recovery.current.number == end.number:
            count = bisect_left(batch.starts, end.offset - batch.base)
        starts, ends, times = batch.starts[:count], batch.ends[:count], batch.times[:count]
        store.applying.apply(batch._replace(starts=starts, ends=ends, times=times))
        if count < len(batch.starts):
            break
    return store


def _unreadable(
    keyspace: Keyspace,
) -> tuple[list[tuple[int, bytes, list[bytes]]], list[LostEntries]]:
    """Return the entries on disk that cannot be read, as ids and as ranges."""
    ids, lost = [], []
    for (database, key), block, reason in unreadable_blocks(stored_blocks(keyspace)):
        known = block.known_ids()
        alive = [at for at in range(block.count) if block.lives(at)]
        texts = [b"%d-%d" % (known[2 * at], known[2 * at + 1]) for at in alive]
        ids.append((database, key, texts))
        ends = text_of(texts[0]), text_of(texts[-1])
        lost.append(LostEntries(database, text_of(key), *ends, len(texts), reason))
    return ids, lost


def _added(keyspace: Keyspace, before: dict[int, tuple[int, int]]) -> Iterator[LostEntries]:
    """Yield the entries that were added to streams since the stream with number n had the last id ``before[n]``."""
    for (database, key), stream in streams_of(keyspace):
        last = before.get(stream.sid, (0, 0))
        if stream.last_id <= last:
            continue
        first = (last[0], last[1] + 1)
        count = stream.log.count_range(first, (MAX_U64, MAX_U64))
        found = (
            [f"{ms}-{seq}" for ms, seq in stream.log.nth(first, [0, count - 1])] if count else []
        )
        if found:
            reason = "it follows the damaged record"
            yield LostEntries(database, text_of(key), found[0], found[-1], count, reason)


def _later(files: Files, cut: Synced, turn: int, seed: int) -> Iterator[tuple[Synced, Group]]:
    """Yield the whole record groups from the damage on, in this journal file and in later ones, with their places.
    Their turns are ``turn`` or later ones."""
    for number in journal_numbers(files):
        if number < cut.number:
            continue
        header = read_file_header(files.read(file_name(number), FILE_HEADER_BYTES))
        if header is None:
            continue
        key = JournalFile(number, header.size, header.version).key
        content = files.content(file_name(number))
        data, used = content.data, content.used
        at = cut.offset if number == cut.number else FILE_HEADER_BYTES
        while at < used:
            at = find_group(data, at, used, seed=seed, turn=turn, key=key)
            if at < 0:
                break
            for group in read_groups(data, at, seed=seed, turn=turn, key=key):
                at, turn = group.end, group.turn
                if group.facts[0] >= _FIRST_ENGINE_KIND:
                    yield Synced(number, group.offset), group


_FIRST_ENGINE_KIND = 0x10
"""Lowest kind of the engine's facts. Facts of lower kinds belong to the journal."""
