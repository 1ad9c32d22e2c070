"""The segments of a node: their writers, and the removal of those without references.

    sealer ─────┐
    compaction ─┴▶ segment-NNNNNN ◀── references: the keyspace, and the image that MANIFEST names, and
                        │             the journal after it
                        └ no reference ──▶ removed after a checkpoint or at a start

Rule 1. A segment is removed only if neither the keyspace nor the image refers to it, and if no record of the
        journal that follows the image names it: a replay would miss it, and the state at an earlier moment
        needs it. So after a checkpoint it must have been complete, with every block in it settled, before
        the image's rotation (`floor`).
Rule 2. Before a segment is removed, MANIFEST names the numbers that were used (catalog.py).
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from headwater.journal.log.journal import Journal
from headwater.journal.log.reserve import FIRST_FILE_BYTES
from headwater.journal.segments.segments import SegmentWriter, segment_name, segment_numbers

log = logging.getLogger("headwater.journal")


def segment_writer(journal: Journal) -> SegmentWriter:
    """Return a writer of new segments. The writer leaves the space for the next image and for the journal file
    that a rotation needs, so that a disk full of journal can still be emptied by a checkpoint."""
    catalog = journal.catalog

    def room(needed: int) -> int:
        left = catalog.spare_bytes + FIRST_FILE_BYTES
        return catalog.make_room(needed + left) - left

    return SegmentWriter(journal.files, journal.seed, catalog.take_segment, room=room)


class Segments:
    """The segments of the directory of ``journal``. Methods require the node's lock, except for `remove`."""

    def __init__(self, journal: Journal) -> None:
        self.writer = segment_writer(journal)
        """Writer of the sealer. Only the sealer's thread uses it."""
        self.settled = 0
        """Number of the segment that contains the block that the sealer settled last."""
        self.compacting_from: int | None = None
        """Lowest segment number of the running compaction; None if none runs."""
        self.failure = ""
        """Reason why no segment can be written; empty if one can."""
        self._journal = journal
        self._first = journal.catalog.next_segment

    def floor(self) -> int:
        """Return a number below which all segments are complete and settled."""
        floor = max(self._first, self.settled)
        return floor if self.compacting_from is None else min(floor, self.compacting_from)

    def unneeded(self, floor: int, *referenced: Collection[int]) -> list[int]:
        """Return the segments below ``floor`` to which nothing refers."""
        there = (number for number in segment_numbers(self._journal.files) if number < floor)
        return [one for one in there if not any(one in numbers for numbers in referenced)]

    def remove(self, numbers: Collection[int]) -> None:
        """Remove segments. Any thread may call it. A failure is logged; the next start tries again."""
        gone = self._journal.catalog.remove_segments(numbers)
        if gone:
            log.info("%d segments without entries were removed", len(gone))

    def remove_orphans(self, state: Collection[int], named: Collection[int]) -> None:
        """Remove, at a start, every segment to which the state does not refer and that the image and the journal
        have not ``named``. Report missing segments."""
        there = set(segment_numbers(self._journal.files))
        for number in sorted(set(state) - there):
            log.error(
                "%s is missing: its entries cannot be read. Restore it from a backup",
                self._journal.files.path(segment_name(number)),
            )
        self.remove(self.unneeded(self._first, state, named))
