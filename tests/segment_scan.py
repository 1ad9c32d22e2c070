"""Finds the blobs of a segment without knowing their places, as only tests need it.

Rule 1. A blob is found if one of its heads is valid. Its ids and its body may be damaged or missing: after a
        crash, any part of what was not synced may be on disk. `SegmentReader` checks them.
Rule 2. What is between blobs that were found is not a blob: the remains of a crash or of a failed write, or
        damage. Only a reference to such a place says that it is damage.
Rule 3. Searching reads each byte once, and examines 64 bytes for each mark it finds.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.engine.bodies.blobs import BlobPlace
from headwater.errors import JournalDamaged
from headwater.journal.disk.files import Files
from headwater.journal.format.records import FILE_HEADER_BYTES
from headwater.journal.segments.blobs import HEAD_BYTES, MARK, BlobHead, FoundHead, find_head
from headwater.journal.segments.segments import segment_name, segment_numbers

_WINDOW_BYTES = 1024 * 1024


def scan_segment(files: Files, name: str, seed: int) -> Iterator[tuple[BlobHead, BlobPlace]]:
    """Yield head and place of each blob of a segment, in order. Raises `OSError`, and `JournalDamaged` if this
    is not the name of a segment."""
    number = next((one for one in segment_numbers(files) if segment_name(one) == name), None)
    if number is None:
        raise JournalDamaged(
            f"{files.path(name)} is not a segment: their names are segment-NNNNNN."
        )
    at = FILE_HEADER_BYTES
    while True:
        data = files.reads.at(name, at, HEAD_BYTES)
        found = find_head(data, at, segment=number, seed=seed)
        if found is None or found.place.offset < at:
            found = next_head(files, number, at, seed, not_before=at)
        if found is None:
            return
        yield found.head, found.place
        at = found.place.end


def next_head(
    files: Files, segment: int, offset: int, seed: int, *, not_before: int = 0
) -> FoundHead | None:
    """Return the first valid head that begins at ``offset`` or later, of a blob that begins at ``not_before``
    or later; None if there is none. It may be the second head of a blob whose first one is damaged."""
    name = segment_name(segment)
    while True:
        window = files.reads.at(name, offset, _WINDOW_BYTES)
        at = window.find(MARK)
        while 0 <= at <= len(window) - HEAD_BYTES:
            data = window[at : at + HEAD_BYTES]
            found = find_head(data, offset + at, segment=segment, seed=seed)
            if found is not None and found.place.offset >= not_before:
                return found
            at = window.find(MARK, at + 1)
        if len(window) < _WINDOW_BYTES:
            return None
        # A head may begin in this window and end in the next.
        offset += _WINDOW_BYTES - HEAD_BYTES + 1
