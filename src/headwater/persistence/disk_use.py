"""Measures the disk space of a data directory by kind of file and by stream, even while a server uses it."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from headwater.common.names import text_of
from headwater.errors import StoreUnusable
from headwater.journal.disk.files import DiskFiles, Files
from headwater.journal.disk.locks import BACKUP_LOCK_NAME, held_for_backup
from headwater.journal.disk.regular import check_readable
from headwater.journal.format.failures import MANIFEST_NAME, reading
from headwater.journal.format.manifest import StoreManifest, read_manifest
from headwater.journal.format.names import (
    UNNEEDED_NAME,
    file_name,
    image_name,
    image_numbers,
    is_unfinished,
    journal_numbers,
    past_name,
    past_numbers,
)
from headwater.journal.images.retention import read_unneeded
from headwater.journal.segments.segments import segment_name, segment_numbers
from headwater.persistence.reading import (
    Progress,
    StoreReader,
    place_of,
    silent,
    stored_blocks,
)


class DiskUse(NamedTuple):
    """Files of one kind. ``bytes`` is the allocated space, which is less than the size of a sparse file."""

    what: str
    files: int
    bytes: int


class StreamOnDisk(NamedTuple):
    """The blocks of a stream that are in segments. The stream's other entries are in the image and the journal."""

    database: int
    stream: str
    blocks: int
    entries: int
    bytes: int


def disk_use(directory: Path) -> list[DiskUse]:
    """Return the disk space by kind of file. Raises `StoreUnusable` if the directory has no store, and
    `JournalDamaged` if MANIFEST is damaged."""
    check_readable(directory)
    files = DiskFiles(directory)
    with reading(files):
        manifest = read_manifest(files)
        if manifest is None:
            raise StoreUnusable(f"{directory} has no store: there is no {MANIFEST_NAME}")
        named = _named(files, manifest)
        used: dict[str, list[int]] = {what: [] for what in dict.fromkeys(named.values())}
        for name in files.names():
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                size = (directory / name).stat().st_blocks * 512
                used.setdefault(named.get(name, _other(name)), []).append(size)
    return [DiskUse(what, len(sizes), sum(sizes)) for what, sizes in used.items()]


def _named(files: Files, manifest: StoreManifest) -> dict[str, str]:
    """Return name → kind of each data file."""
    image = 0 if manifest.image is None else manifest.image.number
    kept, unneeded = "kept by journal-retention", read_unneeded(files)
    named = {image_name(one): "image" if one == image else kept for one in image_numbers(files)}
    named |= {
        file_name(one): "journal" if one >= manifest.first else kept
        for one in journal_numbers(files)
    }
    named |= {
        segment_name(one): kept if one in unneeded else "segments" for one in segment_numbers(files)
    }
    return named | {past_name(one): kept for one in past_numbers(files)} | {UNNEEDED_NAME: kept}


def _other(name: str) -> str:
    return "unfinished" if is_unfinished(name) else "other"


def streams_on_disk(files: Files, progress: Progress = silent) -> list[StreamOnDisk]:
    """Return the streams with blocks in segments, largest first. Raises `JournalDamaged` and `StoreUnusable`."""
    with reading(files), held_for_backup(files.path(BACKUP_LOCK_NAME)):
        store = StoreReader(files, progress, live=True)
        store.apply_image()
        for batch in store.of_journal():
            store.applying.apply(batch)
        totals: dict[tuple[int, bytes], list[int]] = defaultdict(lambda: [0, 0, 0])
        for key, block in stored_blocks(store.applying.finish()):
            place = place_of(block)
            for at, more in enumerate((1, block.live, place.size)):
                totals[key][at] += more
    found = [
        StreamOnDisk(database, text_of(key), *total) for (database, key), total in totals.items()
    ]
    return sorted(found, key=lambda one: -one.bytes)
