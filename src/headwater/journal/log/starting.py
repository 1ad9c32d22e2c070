"""Makes a recovered directory writable: repairs it, chooses the file to continue, and writes MANIFEST.

Rule 1. The order is: the journal files, their names, MANIFEST, and only then the removal of what MANIFEST
        does not name.
Rule 2. A full disk does not prevent a start: without a new MANIFEST the old one stays true, and writes are
        accepted as long as there is space in files that exist.
"""

from __future__ import annotations

import logging

from headwater.errors import StoreUnusable
from headwater.journal.disk.files import Files
from headwater.journal.format.records import FILE_HEADER_BYTES, Synced
from headwater.journal.log.recovery import Recovery
from headwater.journal.log.repair import repair
from headwater.journal.log.reserve import Reserve
from headwater.journal.log.writing import Writer

log = logging.getLogger("headwater.journal")


def begin(files: Files, recovery: Recovery, reserve: Reserve, writer: Writer, seed: int) -> None:
    """Make ``writer`` continue where ``recovery`` ended. Raises `StoreUnusable` if a new journal cannot be
    created, and `OSError` if the repair fails."""
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
            # Its space may not be allocated, so it counts as full.
            writer.size = 0
    writer.unrecorded_sync, writer.clean = _durable(recovery, writer), recovery.clean
    writer.turn, writer.now_ms = recovery.last_turn, recovery.last_now_ms
    if writer.end > FILE_HEADER_BYTES:
        recovery.catalog.floor = writer.here()
    reserve.prepare(writer.number + 1)
    _write_manifest(files, recovery, reserve.last(writer.number), seed)


def _durable(recovery: Recovery, writer: Writer) -> Synced:
    """Return how far the journal is durable, for its next record: if that is the first of its file, the end of the
    file before, which the image has replaced and a past may need (`headwater.journal.images.retention`)."""
    floor = recovery.catalog.floor
    begins = writer.end == FILE_HEADER_BYTES and 0 < floor.number == writer.number - 1
    return floor if begins else writer.here()


def _write_manifest(files: Files, recovery: Recovery, last: int, seed: int) -> None:
    catalog = recovery.catalog
    try:
        if not catalog.fresh or catalog.last < last:
            catalog.start(seed, last)
    except OSError as error:
        log.warning("the file MANIFEST in %s could not be written: %s", files.path(""), error)
        return
    catalog.remove_old()
