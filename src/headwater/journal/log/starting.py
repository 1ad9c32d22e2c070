"""Makes a recovered directory writable: repairs it, chooses the file to continue, and writes MANIFEST.

Rule 1. The order is: the journal files, their names, MANIFEST, and only then the removal of files that
        MANIFEST does not name.
Rule 2. A full disk does not prevent a start: without a new MANIFEST the old one stays true, and writes are
        accepted as long as there is space in files that exist.
"""

from __future__ import annotations

import logging

from headwater.errors import StoreUnusable
from headwater.journal.disk.files import Files
from headwater.journal.format.failures import MANIFEST_NAME
from headwater.journal.format.manifest import FOREVER, StoreHistory
from headwater.journal.format.names import TEMPORARY_SUFFIX, is_unfinished, number_of
from headwater.journal.format.records import FILE_HEADER_BYTES, Synced
from headwater.journal.log.recovery import Recovery
from headwater.journal.log.report import Cut
from headwater.journal.log.reserve import Reserve
from headwater.journal.log.writing import Writer

log = logging.getLogger("headwater.journal")


def begin(files: Files, recovery: Recovery, reserve: Reserve, writer: Writer, seed: int) -> None:
    """Make ``writer`` continue where ``recovery`` ended. Raises `StoreUnusable` if a new journal cannot be
    created, and `OSError` if the repair fails."""
    recovery.catalog.history = _history(recovery)
    if recovery.is_empty:
        reason = reserve.make_next(recovery.catalog.first, 0)
        if reason is not None:
            raise StoreUnusable(
                f"no journal can be created in {files.path('')}: {reason}. Free some space "
                "or give the process write permission there."
            )
        writer.use(reserve.take(), FILE_HEADER_BYTES)
    else:
        repair(files, recovery)
        writer.use(recovery.current, recovery.end)
        reserve.adopt(recovery.current, recovery.spares)
        if not reserve.reclaim(recovery.current):
            # The file may have holes for which the disk has no space, so it counts as full.
            writer.size = 0
    writer.unrecorded_sync, writer.clean = _durable(recovery, writer), recovery.clean
    writer.turn, writer.now_ms = recovery.last_turn, recovery.last_now_ms
    if writer.end > FILE_HEADER_BYTES:
        recovery.catalog.floor = writer.here()
    reserve.prepare(writer.number + 1)
    _write_manifest(files, recovery, reserve.last(writer.number), seed)


def _durable(recovery: Recovery, writer: Writer) -> Synced:
    """Return the end of the durable journal, for its next record. If that will be the first record of a file, it
    is the end of the previous file, which a past may need (`headwater.journal.images.retention`)."""
    floor = recovery.catalog.floor
    begins = writer.end == FILE_HEADER_BYTES and 0 < floor.number == writer.number - 1
    return floor if begins else writer.here()


def _history(recovery: Recovery) -> StoreHistory:
    """Return the history that the store continues. After a clean stop, and for a replica, it is the former one. After a
    crash of a primary it is a new one: a replica may have received changes that are lost here. That the journal ends
    cleanly is not enough: what followed an earlier clean stop or a rotation may be lost."""
    former = recovery.catalog.history
    if former is None:
        return StoreHistory.new()
    replica = any(
        one.offset == FOREVER for one in former.left
    )  # nothing was written to its own history yet
    if replica or former.stopped == recovery.offset:
        return former._replace(stopped=None)
    recovery.crashed = True
    return former.leave(recovery.offset)


def _write_manifest(files: Files, recovery: Recovery, last: int, seed: int) -> None:
    catalog = recovery.catalog
    try:
        if not catalog.fresh or catalog.last < last:
            catalog.start(seed, last)
    except OSError as error:
        log.warning("the file MANIFEST in %s could not be written: %s", files.path(""), error)
        return
    catalog.remove_old()


log = logging.getLogger("headwater.journal")

# --- making the files contain exactly what a recovery returned ------------------------------------
#
# Everything after a cut is overwritten with zeros, durably, before anything new is written, so that an old record can
# never follow a new one. Content that no fact ``synced`` confirms as durable is written again before it is relied on:
# after a failed fsync, the content of a file or directory may be in memory only and never reach the disk. A file was
# durable before MANIFEST named it. A spare with a damaged header is removed after MANIFEST no longer names it.
# The reserve creates it again.


_ZEROS = bytes(1024 * 1024)


def repair(files: Files, recovery: Recovery) -> None:
    """Make the files contain exactly what ``recovery.batches`` returned, durably.

    Raises `OSError` if the disk fails.
    """
    for name in files.names():
        if is_unfinished(name):
            files.remove(name)
    _remove_damaged_spare(files, recovery)
    _rename_again(files, recovery)
    kept = {file.name for file in (recovery.current, *recovery.spares)}
    cuts = [cut for cut in recovery.cuts if cut.file in kept]
    for cut in cuts:
        _write_zeros(files, cut)
    name = recovery.current.name
    start = FILE_HEADER_BYTES
    if recovery.last_synced.number == recovery.current.number:
        start = recovery.last_synced.offset
    if recovery.end > start:
        files.write(name, start, files.read(name, recovery.end - start, start))
    for touched in sorted({name, *(cut.file for cut in cuts)}):
        files.sync(touched)
    files.sync_directory()


def _remove_damaged_spare(files: Files, recovery: Recovery) -> None:
    """Remove a spare with a damaged header. Keep it if MANIFEST names it and cannot be replaced."""
    name, catalog = recovery.damaged_spare, recovery.catalog
    if name is None:
        return
    if catalog.manifest is not None and number_of(name) <= catalog.last:
        try:
            catalog.replace(catalog.manifest._replace(last=number_of(name) - 1))
        except OSError as error:
            log.warning("%s was not replaced: %s", files.path(MANIFEST_NAME), error)
            return
    files.remove(name)


def _rename_again(files: Files, recovery: Recovery) -> None:
    """Write the names again that may not be durable. A file with records has a durable name, as has one that MANIFEST
    names. The first other file without records is renamed and renamed back; the files after it are removed before
    that, so that a crash leaves no gap."""
    empty = [file for file in recovery.spares if file.number > recovery.catalog.last]
    if recovery.end == FILE_HEADER_BYTES and recovery.current.number > recovery.catalog.last:
        empty.insert(0, recovery.current)
    for file in reversed(empty[1:]):
        files.remove(file.name)
        files.sync_directory()
    for file in empty[:1]:
        files.rename(file.name, file.name + TEMPORARY_SUFFIX)
        files.rename(file.name + TEMPORARY_SUFFIX, file.name)
    removed = set(empty[1:])
    recovery.spares = [file for file in recovery.spares if file not in removed]


def _write_zeros(files: Files, cut: Cut) -> None:
    done = 0
    while done < cut.length:
        count = min(cut.length - done, len(_ZEROS))
        files.write(cut.file, cut.offset + done, _ZEROS[:count])
        done += count
