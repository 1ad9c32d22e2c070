"""Copies a store in its current state or as it was at an earlier moment, even while a server uses it.

Rule 1. While a backup is made, the server removes no file (`Files.removable`). So the files that MANIFEST names when
        the backup begins still exist, and so do the segments that the journal names until it is copied. A later
        image and a later MANIFEST are not copied: the journal contains the same changes.
Rule 2. MANIFEST is read first, then the journal is copied, then the image and the segments: MANIFEST says how far the
        journal must reach, and a segment is durable before the journal refers to it. A segment that does not exist
        any more had no blob, because its creation failed.
Rule 3. The journal of the copy has one end. It is in the last file that has records when the copy begins, searched for
        from the newest to the oldest: earlier files are closed and do not change any more. This file is copied up
        to the length that it has when its turn comes (`headwater.journal.disk.copies`, rule 1); it may be closed
        by then. All files after it are copied as empty ones, even if they have records by now. So the end may be
        torn, as after a crash, and no later file names another end.
Rule 4. A start cuts off a torn end and writes something else there. If the store is started while its journal is
        copied, the journal is copied again, according to the MANIFEST after that start.
Rule 5. Files are copied, not linked: a store refuses data files with a second name
        (`headwater.journal.disk.regular`). On file systems that share blocks, such as XFS and Btrfs, the kernel does
        not copy the bytes.
Rule 6. A backup is a data directory: a server can start with it. Until it is complete, its MANIFEST marks it as
        unfinished (`manifest.UNFINISHED`), and no server starts with it. A copy that fails is removed.
Rule 7. The state of a moment is the last image before it, followed by the journal up to the first record group of
        a later time. `headwater.journal.images.retention` keeps the older images and journal files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.common.moments import iso_time
from headwater.errors import StoreUnusable
from headwater.journal.disk.copies import PIECE_BYTES, copy_file
from headwater.journal.disk.files import DiskFiles, Files
from headwater.journal.disk.locks import BACKUP_LOCK_NAME, LOCK_NAME, held_for_backup
from headwater.journal.disk.regular import check_link, check_readable, create_regular
from headwater.journal.format.failures import MANIFEST_NAME, reading
from headwater.journal.format.manifest import UNFINISHED, StoreManifest, read_manifest
from headwater.journal.format.names import file_name, image_name, journal_numbers
from headwater.journal.format.records import FILE_HEADER_BYTES, Synced, read_file_header
from headwater.journal.format.replacing import replace_file
from headwater.journal.images.catalog import Catalog
from headwater.journal.images.retention import past_before, until_next_image
from headwater.journal.log.recovery import Recovery
from headwater.journal.segments.segments import segment_name, segment_numbers
from headwater.persistence.reading import Progress, silent

_STARTS = 10
"""Maximum number of attempts to copy the journal, which is copied again if the store was started meanwhile."""
_NOT_OURS = {"lost+found"}
"""Names that a file system creates itself, so that a mounted disk counts as empty."""

_LOCKS = (LOCK_NAME, BACKUP_LOCK_NAME)
"""Files that readers lock. Readers create nothing, so a copy has these files from the beginning."""


class Backup(NamedTuple):
    """Result of a backup: the number of copied files and their size."""

    directory: str
    files: int
    bytes: int


class Moment(NamedTuple):
    """The result of restoring a directory as it was at a moment. Times are the server's, in Unix milliseconds."""

    directory: str
    at_ms: int
    """Time of the last record group that the directory has."""
    left_out: int
    """Number of later record groups that were copied, and then removed from the copy."""


def back_up(
    directory: Path,
    destination: Path,
    progress: Progress = silent,
    *,
    piece_bytes: int = PIECE_BYTES,
) -> Backup:
    """Copy the store in ``directory`` to ``destination``, which must be empty or missing. ``progress`` is called after
    each piece of ``piece_bytes`` bytes, and after each file.

    Raises `StoreUnusable` if ``directory`` has no store, or if ``destination`` is not empty; `OSError` if the disk
    fails. In these cases, nothing is added to ``destination``.
    """
    with _source(directory) as files, _destination(directory, destination) as copy:
        copier = _Copier(files, copy, progress, piece_bytes)
        manifest = copier.copy(lambda: _newest(files))
        _name_all(copy, manifest)
        return Backup(str(destination), len(copier.copied) + 1, copier.done)


def restore_at(
    directory: Path,
    destination: Path,
    at_ms: int,
    progress: Progress = silent,
    *,
    piece_bytes: int = PIECE_BYTES,
) -> Moment:
    """Copy the store in ``directory`` to ``destination`` as it was at ``at_ms``.

    Raises the errors of `back_up`, and `StoreUnusable` if the history that ``journal-retention`` keeps in
    ``directory`` does not reach back to ``at_ms``.
    """

    def past() -> tuple[StoreManifest, int | None]:
        to_end = past_before(files, at_ms)
        found = until_next_image(files, to_end)
        return found, None if found == to_end else found.last

    with _source(directory) as files:
        past()  # raises before anything is created
        with _destination(directory, destination) as copy:
            manifest = _Copier(files, copy, progress, piece_bytes).copy(past)
            return _cut_after(copy, manifest, destination, at_ms)


@contextlib.contextmanager
def _source(directory: Path) -> Iterator[Files]:
    """Provide the files of ``directory``, and keep a server from removing any of them meanwhile."""
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


@contextlib.contextmanager
def _destination(directory: Path, destination: Path) -> Iterator[DiskFiles]:
    """Provide a directory with an unfinished MANIFEST (rule 6), and empty it again if the context fails."""
    check_link(destination)
    copy = DiskFiles(destination)
    if destination.resolve().is_relative_to(directory.resolve()):
        raise StoreUnusable(f"{destination} is in the data directory {directory}; name another one")
    new = not destination.exists()
    if not new and (not destination.is_dir() or set(copy.names()) - _NOT_OURS):
        if destination.is_dir() and MANIFEST_NAME in copy.names():
            read_manifest(copy)  # raises if it is an unfinished copy
        raise StoreUnusable(
            f"{destination} is not an empty directory; name one that does not exist"
        )
    copy.make_directory()
    try:
        mark = os.open(destination / MANIFEST_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise StoreUnusable(f"another process has just begun a copy in {destination}") from None
    try:
        with os.fdopen(mark, "wb") as file:
            file.write(UNFINISHED)
            file.flush()
            os.fsync(mark)
        for name in _LOCKS:
            os.close(create_regular(copy.path(name)))
        copy.sync_directory()
        yield copy
    except BaseException:
        with contextlib.suppress(OSError):
            _remove_all(copy, destination, new=new)
        raise
    finally:
        copy.unlock()  # closes its files


def _remove_all(copy: DiskFiles, destination: Path, *, new: bool) -> None:
    """Remove a copy, MANIFEST last. With ``new``, also remove its directory."""
    for name in sorted(copy.names(), key=lambda name: name == MANIFEST_NAME):
        if name.startswith(("journal-", "image-", "segment-", MANIFEST_NAME)) or name in _LOCKS:
            copy.remove(name)
    if new:
        destination.rmdir()


def _name_all(copy: Files, manifest: StoreManifest) -> None:
    """Make a directory a store by writing MANIFEST. All its other files must be complete. The copy begins a history of
    its own, because the original may go on."""
    copy.sync_directory()
    replace_file(copy, MANIFEST_NAME, manifest._replace(history=None).text())
    copy.sync_directory()


def _newest(files: Files) -> tuple[StoreManifest, int | None]:
    manifest = read_manifest(files)
    assert manifest is not None, "it was there, and a store has one from then on"
    return manifest, None


class _Copier:
    """Copies the files of one store. ``copied`` has their names, ``done`` is the sum of their sizes."""

    def __init__(self, files: Files, copy: Files, progress: Progress, piece_bytes: int) -> None:
        self.copied: set[str] = set()
        self.done = self._total = 0
        self._files = files
        self._copy = copy
        self._progress = progress
        self._piece_bytes = piece_bytes

    def copy(self, choose: Callable[[], tuple[StoreManifest, int | None]]) -> StoreManifest:
        """Copy all files but MANIFEST, and return its content. ``choose`` returns the content of MANIFEST, and the
        number of the last journal file to copy, or None to copy all."""
        for _attempt in range(_STARTS):
            started = self._started()
            manifest, last = choose()
            try:
                self._copy_journal(manifest, last)
            except FileNotFoundError:
                if started == self._started():
                    raise
            if started == self._started():
                break
            for name in self.copied:  # rule 4
                self._copy.remove(name)
            self.copied, self.done, self._total = set(), 0, 0
        else:
            raise StoreUnusable(
                f"{self._files.path('')} was started {_STARTS} times while its journal was copied. Make the backup "
                "when the server stays up, or while it is stopped"
            )
        segments = [segment_name(number) for number in segment_numbers(self._files)]
        image = [] if manifest.image is None else [image_name(manifest.image.number)]
        self._copy_all(image + segments)
        return manifest

    def _started(self) -> tuple[int, int] | None:
        """Return a value that changes at each start, which writes to the lock file; None without the file."""
        try:
            found = Path(self._files.path(LOCK_NAME)).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _copy_journal(self, manifest: StoreManifest, last: int | None) -> None:
        """Copy the journal files of ``manifest`` up to ``last`` (rule 3)."""
        numbers = [one for one in journal_numbers(self._files) if one >= manifest.first]
        wanted = [one for one in numbers if last is None or one <= last]
        end = next((one for one in reversed(wanted) if self._has_records(file_name(one))), 0)
        # A journal file after `end` and `manifest.last` is being created, or was removed again.
        names = {one: file_name(one) for one in wanted if one <= max(end, manifest.last)}
        self._copy_all([name for one, name in names.items() if one <= end])
        self._copy_all([name for one, name in names.items() if one > end], empty=True)

    def _has_records(self, name: str) -> bool:
        try:
            return any(self._read(name, FILE_HEADER_BYTES))
        except FileNotFoundError:
            return False

    def _read(self, name: str, offset: int) -> memoryview:
        """Return up to `FILE_HEADER_BYTES` bytes of a file, beginning at ``offset``."""
        try:
            return self._files.read(name, FILE_HEADER_BYTES, offset)
        finally:
            self._files.close(name)  # another file may get its name

    def _copy_all(self, names: list[str], *, empty: bool = False) -> None:
        """Copy files. With ``empty``, copy only the headers of journal files, into files of the size that the
        header states, because a file that was used meanwhile may be shorter."""
        paths = {name: Path(self._files.path(name)) for name in names}
        self._total += sum(path.stat().st_size for path in paths.values() if path.exists())
        for name, path in paths.items():
            header = read_file_header(self._read(name, 0)) if empty else None
            size = None if header is None else header.size
            target, limit = Path(self._copy.path(name)), FILE_HEADER_BYTES if empty else None
            try:
                for done in copy_file(
                    path, target, limit=limit, size=size, piece_bytes=self._piece_bytes
                ):
                    self._progress("bytes copied", min(self.done + done, self._total), self._total)
            except FileNotFoundError:
                if name.startswith("segment-") and not path.exists():  # rule 2
                    continue
                raise
            self.copied.add(name)
            self.done += target.stat().st_size
            self._progress("bytes copied", min(self.done, self._total), self._total)


def _cut_after(files: Files, manifest: StoreManifest, directory: Path, at_ms: int) -> Moment:
    """Remove all record groups after the time ``at_ms`` from a copy, and make it a store."""
    recovery = Recovery(files, Catalog(files, manifest))
    image = manifest.image
    last_ms = 0 if image is None else image.now_ms
    end: Synced | None = None
    left_out, first_ms = 0, None
    for batch in recovery.batches():
        first_ms = batch.times[0] if first_ms is None and batch.times else first_ms
        kept = len(batch.until(at_ms).times) if end is None else 0
        if end is None and kept < len(batch.times):
            end = Synced(recovery.current.number, batch.offset(kept))
        last_ms = batch.times[kept - 1] if kept else last_ms
        left_out += len(batch.times) - kept
    if first_ms is not None and last_ms == 0:
        raise StoreUnusable(
            f"the store begins at {iso_time(first_ms)}; at {iso_time(at_ms)} it did not exist yet. Name a later time."
        )
    if end is None:
        _name_all(files, manifest)
    else:
        end_journal(files, manifest, end)
    return Moment(str(directory), last_ms, left_out)


def end_journal(files: Files, manifest: StoreManifest, end: Synced) -> None:
    """Cut off the journal at ``end``, and record this end in MANIFEST."""
    for number in journal_numbers(files):
        if number > end.number:
            files.remove(file_name(number))
    name = file_name(end.number)
    used = files.content(name).used
    if used > end.offset:
        files.write(name, end.offset, bytes(used - end.offset))
    header = read_file_header(files.read(name, FILE_HEADER_BYTES))
    assert header is not None, "it was read"
    files.allocate(name, header.size)  # a rotation may have freed its unused space
    files.sync(name)
    floor = Synced(end.number, max(end.offset, FILE_HEADER_BYTES))
    _name_all(files, manifest._replace(last=end.number, floor=min(manifest.floor, floor)))
