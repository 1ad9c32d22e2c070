"""Reads blobs from segments, by any thread.

Rule 1. Every byte that is returned was checked against its checksum, seed and position included.
Rule 2. Head and ids are read from the first copy, and from the second if the first cannot be read.
Rule 3. A part that is damaged, missing or unreadable (EIO) raises `BlobDamaged`, for that blob only. Other
        errors of the system are raised unchanged, as `OSError`: the blob may be readable later.
Rule 4. `SegmentReader.cached_body` never waits for a disk. If it returns None, call `body`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

from headwater.engine.bodies.blobs import CHECKSUM_BYTES, BlobPlace
from headwater.journal.disk.files import Files
from headwater.journal.segments.blobs import (
    FIRST,
    SECOND,
    BlobDamaged,
    BlobHead,
    check_body,
    decode_ids,
)
from headwater.journal.segments.segments import segment_name

READ_AHEAD_BYTES = 8 * 1024 * 1024
"""Maximum size of one request to read ahead, in bytes."""
_GAP_BYTES = 64 * 1024
"""Bodies with at most this many bytes between them are read ahead together."""
_LOST = {errno.EIO, errno.ENOENT}
"""Errors after which a part is lost: the disk cannot read it, or its file is missing."""


class SegmentReader:
    """Reads the blobs of a directory.

    >>> from headwater.journal.segments.segments import SegmentWriter
    >>> from headwater.testing.files import CrashableFiles
    >>> files = CrashableFiles()
    >>> writer = SegmentWriter(files, seed=5, next_number=iter((1, 2)).__next__)
    >>> place = writer.append(BlobHead(7, 1, 0, 9, 0, 9, codec=0, raw_bytes=4), b"ids", b"body")
    >>> reader = SegmentReader(files, seed=5)
    >>> reader.body(place), reader.ids(place), reader.head(place).last_ms
    (b'body', b'ids', 9)
    """

    def __init__(self, files: Files, seed: int) -> None:
        self._files = files
        self._reads = files.reads
        self._seed = seed

    # --- parts of a blob ------------------------------------------------------------------------

    def body(self, place: BlobPlace) -> bytes:
        """Return the body of a blob. Raises `BlobDamaged`."""
        try:
            data = self._part(place, place.body_offset, place.body_bytes + CHECKSUM_BYTES)
            return check_body(data, place, seed=self._seed)
        except ValueError as error:
            raise self._damaged(place, error) from error

    def cached_body(self, place: BlobPlace) -> bytes | None:
        """Return the body of a blob without waiting for a disk; None if it is not in memory, or damaged."""
        segment, offset, head_bytes, body_bytes = place
        length = body_bytes + CHECKSUM_BYTES
        try:
            data = self._reads.cached(segment_name(segment), offset + head_bytes, length)
            return None if data is None else check_body(data, place, seed=self._seed)
        except (ValueError, OSError):
            # To describe damage, the head has to be read.
            return None

    def ids(self, place: BlobPlace) -> bytes:
        """Return the ids of a blob. Raises `BlobDamaged` if both copies are damaged."""
        return self.head_and_ids(place)[1]

    def head(self, place: BlobPlace) -> BlobHead:
        """Return the head of a blob. Raises `BlobDamaged` if both copies are damaged."""
        return self.head_and_ids(place)[0]

    def head_and_ids(self, place: BlobPlace) -> tuple[BlobHead, bytes]:
        """Return head and ids of a blob. Raises `BlobDamaged` if both copies are damaged."""
        flaws = []
        for copy in (FIRST, SECOND):
            try:
                return self._copy(place, copy)
            except ValueError as error:
                flaws.append(str(error))
        raise BlobDamaged(
            f"{self._path(place.segment)}: both copies of the ids of the blob at offset {place.offset} are "
            f"damaged: {flaws[0]}; {flaws[1]}. Restore the file from a backup."
        )

    def flaws(self, place: BlobPlace) -> list[str]:
        """Return a sentence for each damaged copy of the head and ids of a blob. One copy is enough."""
        found = []
        for copy in (FIRST, SECOND):
            try:
                self._copy(place, copy)
            except ValueError as error:
                found.append(
                    f"{self._path(place.segment)}: one of the two copies of the ids of the blob at offset "
                    f"{place.offset} is damaged: {error}"
                )
        return found

    def _copy(self, place: BlobPlace, copy: int) -> tuple[BlobHead, bytes]:
        """Return one copy of head and ids. Raises `ValueError`, which names the offset."""
        offset = place.offset if copy == FIRST else place.second_offset
        try:
            data = self._part(place, offset, place.head_bytes)
            return decode_ids(data, place, seed=self._seed, copy=copy)
        except ValueError as error:
            raise ValueError(f"{error} (offset {offset})") from error

    # --- reading ahead --------------------------------------------------------------------------

    def read_ahead(self, places: Iterable[BlobPlace]) -> None:
        """Ask the system to read these bodies soon, neighbours together."""
        for segment, start, end in _ranges(places):
            try:
                self._reads.ahead(segment_name(segment), start, end - start)
            except OSError:
                return  # Reading the body raises the error.

    # --- errors ---------------------------------------------------------------------------------

    def _part(self, place: BlobPlace, offset: int, length: int) -> bytes:
        """Return bytes of a blob. Raises `ValueError` if they are lost."""
        try:
            return self._reads.at(segment_name(place.segment), offset, length)
        except OSError as error:
            if error.errno not in _LOST:
                raise
            raise ValueError(f"[Errno {error.errno}] {error.strerror}") from error

    def _path(self, segment: int) -> str:
        return self._files.path(segment_name(segment))

    def _damaged(self, place: BlobPlace, flaw: ValueError) -> BlobDamaged:
        try:
            what = str(self.head(place))
        except BlobDamaged:
            what = "entries of an unknown stream, because their ids are damaged as well"
        return BlobDamaged(
            f"{self._path(place.segment)}: the body of {place.body_bytes} bytes at offset "
            f"{place.body_offset} is damaged: {flaw}. It has {what}. All other entries can be read. "
            "Restore the file from a backup, or delete these entries."
        )


def _ranges(places: Iterable[BlobPlace]) -> Iterator[tuple[int, int, int]]:
    """Yield segment, start and end of the ranges that contain these bodies."""
    current: tuple[int, int, int] | None = None
    for place in sorted(places):
        start, end = place.body_offset, place.second_offset
        if current is not None:
            segment, first, last = current
            near = segment == place.segment and start - last <= _GAP_BYTES
            if near and end - first <= READ_AHEAD_BYTES:
                current = (segment, first, end)
                continue
            yield current
        current = (place.segment, start, end)
    if current is not None:
        yield current
