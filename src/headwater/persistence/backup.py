"""Copies a store, also while a server uses it, and the state that it had at an earlier moment.

Rule 1. While a backup is made, the server removes no file (`Files.removable`). What MANIFEST names when the backup
        begins, and every segment that the journal names up to the moment at which it is copied, is there.
Rule 2. MANIFEST is copied first, then the journal, then the image and the segments: MANIFEST says how far the
        journal must reach, and a segment is durable before the journal refers to it.
Rule 3. Files are copied, not linked: a store refuses data files with a second name (`journal.regular`). On file
        systems that share blocks, such as XFS and Btrfs, the kernel does not copy the bytes.
Rule 4. A backup is a data directory: a server can start with it. Its end may be torn like after a crash.
Rule 5. The state of a moment is the last image before it, with a journal that ends before the first record group of
        a later time. Images and journal files that MANIFEST does not name any more are there for as long as
        ``journal-retention`` says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.errors import StoreUnusable
from headwater.journal.copies import copy_file, write_file
from headwater.journal.failures import MANIFEST_NAME, reading
from headwater.journal.files import DiskFiles, Files
from headwater.journal.locks import BACKUP_LOCK_NAME, held_for_backup
from headwater.journal.manifest import StoreManifest, read_manifest
from headwater.journal.names import file_name, image_name, journal_numbers
from headwater.journal.records import FILE_HEADER_BYTES, Synced, read_file_header
from headwater.journal.recovery import Recovery
from headwater.journal.regular import check_readable
from headwater.journal.retention import past_before, until_next_image
from headwater.journal.segments import segment_name, segment_numbers
from headwater.journal.system import sync_directory
from headwater.persistence.reading import Progress, silent


class Backup(NamedTuple):
    """What was copied."""

    directory: str
    files: int
    bytes: int


class Moment(NamedTuple):
    """The result of restoring a directory as it was at a moment. Times are in Unix milliseconds of the server."""

    directory: str
    at_ms: int
    """The time of the last record group that the directory has."""
    left_out: int
    """Record groups of later times that were copied and removed."""


def back_up(directory: Path, destination: Path, progress: Progress = silent) -> Backup:
    """Copy the store in ``directory`` to ``destination``, which must be empty or missing.

    Raises `StoreUnusable` if there is no store, or if ``destination`` is not empty; `OSError` as the disk does.
    """
    with _source(directory, destination) as files:
        manifest = read_manifest(files)
        assert manifest is not None, "it was there, and a store has one from then on"
        return _copy(files, manifest, destination, progress)


@contextlib.contextmanager
def _source(directory: Path, destination: Path) -> Iterator[Files]:
    """Provide the files of ``directory``, of which none is removed meanwhile, if they can be copied to
    ``destination``."""
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise StoreUnusable(
            f"{destination} is not an empty directory; name one that does not exist"
        )
    check_readable(directory)
    files = DiskFiles(directory)
    with reading(files):
        known = read_manifest(files)
    if known is None:
        raise StoreUnusable(f"{directory} has no {MANIFEST_NAME}: no store was ever started there")
    try:
        with held_for_backup(files.path(BACKUP_LOCK_NAME)):
            yield files
    finally:
        files.unlock()  # closes them


def _copy(
    files: Files,
    manifest: StoreManifest,
    destination: Path,
    progress: Progress,
    *,
    whole: bool = True,
) -> Backup:
    """Copy what ``manifest`` names, with ``whole`` also the journal files after those."""
    destination.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(destination / MANIFEST_NAME, manifest.text())
    numbers = [one for one in journal_numbers(files) if one >= manifest.first]
    names = [file_name(one) for one in numbers if whole or one <= manifest.last]
    copied = _copy_all(files, names, destination, progress)
    names = [segment_name(number) for number in segment_numbers(files)]
    if manifest.image is not None:
        names.insert(0, image_name(manifest.image.number))
    copied += _copy_all(files, names, destination, progress)
    count = sum(1 for _ in destination.iterdir())
    sync_directory(destination)
    sync_directory(destination.parent)
    return Backup(str(destination), count, copied)


def restore_at(
    directory: Path, destination: Path, at_ms: int, progress: Progress = silent
) -> Moment:
    """Copy the store in ``directory`` to ``destination`` as it was at ``at_ms``.

    Raises as `back_up`, and `StoreUnusable` if what the directory keeps does not reach back so far
    (``journal-retention``).
    """
    with _source(directory, destination) as files:
        to_end = past_before(files, at_ms)
        past = until_next_image(files, to_end)
        _copy(files, past, destination, progress, whole=past == to_end)
    copy = DiskFiles(destination)
    copy.lock()
    try:
        return _cut_after(copy, past, destination, at_ms)
    finally:
        copy.unlock()


def _cut_after(files: Files, manifest: StoreManifest, directory: Path, at_ms: int) -> Moment:
    """Remove all record groups of later times than ``at_ms`` from a store that nobody uses."""
    recovery = Recovery(files)
    image = manifest.image
    last_ms = 0 if image is None else image.now_ms
    end: Synced | None = None
    left_out = 0
    for batch in recovery.batches():
        kept = len(batch.until(at_ms).times) if end is None else 0
        if end is None and kept < len(batch.times):
            end = Synced(recovery.current.number, batch.offset(kept))
        last_ms = batch.times[kept - 1] if kept else last_ms
        left_out += len(batch.times) - kept
    if end is not None:
        end_journal(files, manifest, end)
    return Moment(str(directory), last_ms, left_out)


def end_journal(files: Files, manifest: StoreManifest, end: Synced) -> None:
    """Let the journal end at ``end``."""
    for number in journal_numbers(files):
        if number > end.number:
            files.remove(file_name(number))
    name = file_name(end.number)
    used = files.content(name).used
    if used > end.offset:
        files.write(name, end.offset, bytes(used - end.offset))
    header = read_file_header(files.read(name, FILE_HEADER_BYTES))
    assert header is not None, "it was read"
    files.allocate(name, header.size)  # a rotation has given back what it did not use
    files.sync(name)
    floor = Synced(end.number, max(end.offset, FILE_HEADER_BYTES))
    shorter = manifest._replace(last=end.number, floor=min(manifest.floor, floor))
    files.create(MANIFEST_NAME, len(shorter.text()))
    files.write(MANIFEST_NAME, 0, shorter.text())
    files.sync(MANIFEST_NAME)
    files.sync_directory()


def _copy_all(files: Files, names: list[str], destination: Path, progress: Progress) -> int:
    sizes = [files.reads.size(name) for name in names]
    done, total = 0, sum(sizes)
    for name, size in zip(names, sizes, strict=True):
        copy_file(Path(files.path(name)), destination / name)
        done += size
        progress("bytes copied", done, total)
    return done
