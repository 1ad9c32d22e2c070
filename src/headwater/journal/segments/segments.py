"""Segments: files of blobs that are written once, never changed, and deleted as a whole.

    segment   ┌─────────────┬──────┬──────┬───┬──────────────────────────────┐
              │ file header │ blob │ blob │ … │ zeros, preallocated          │
              └─────────────┴──────┴──────┴───┴──────────────────────────────┘
               0             64

Rule 1. A segment is never appended to after a restart: a `SegmentWriter` begins a new one. Its number is
        reserved by the caller and never used twice, so that a reference to an old segment never finds a new one.
Rule 2. Any thread may read a blob as soon as `SegmentWriter.append` has returned its place. The blob is
        durable, name of the file included, when the next `sync` has returned. Only then may a record refer to it.
Rule 3. A failed `append` leaves all earlier blobs valid. After a failed write the segment is not written
        any further, because the content of the disk is unknown there.
Rule 4. After a failed fsync the writer refuses everything: a second fsync would succeed without the bytes
        being durable.
Rule 5. Space is allocated in steps that double with the file, up to `STEP_BYTES`, so that a small store has
        small files and a large one few system calls.
Rule 6. Reading does not rely on the file header: a damaged header hides no blob.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from functools import lru_cache

from headwater.common.limits import SEGMENT_BYTES
from headwater.engine.bodies.blobs import BlobPlace, blob_size
from headwater.journal.disk.files import Files
from headwater.journal.format.names import numbers_in
from headwater.journal.format.records import FILE_HEADER_BYTES, data_header
from headwater.journal.segments.blobs import BlobHead, encode_blob, head_bytes

SEGMENT_VERSION = 1
STEP_BYTES = 8 * 1024 * 1024
"""Maximum number of bytes that are allocated in advance."""
_FIRST_STEP_BYTES = 1024 * 1024
_JOIN_BYTES = 1024 * 1024
"""Parts of a blob up to this size are joined: copying them takes less time than further system calls."""

_NAME = re.compile(r"segment-(\d{6,})")
_FILE_KIND = 0x08
_MAGIC = b"headwater segment"


@lru_cache(maxsize=256)
def segment_name(number: int) -> str:
    """Return the name of segment ``number``.

    >>> segment_name(7)
    'segment-000007'
    """
    return f"segment-{number:06d}"


def segment_numbers(files: Files) -> list[int]:
    """Return the numbers of all segments of a directory, sorted."""
    return numbers_in(files, _NAME, segment_name)


def segment_header(number: int, seed: int) -> bytes:
    """Return the first 64 bytes of a segment."""
    return data_header(_FILE_KIND, _MAGIC, SEGMENT_VERSION, seed, number, 0)


class SegmentWriter:
    """Appends blobs to the newest segment. Only one thread at a time may use it.

    ``next_number`` returns a reserved number for the next segment. ``room`` gets the number of bytes that are needed,
    and returns the number that may be used.

    >>> from headwater.testing.files import CrashableFiles
    >>> files, numbers = CrashableFiles(), iter(range(1, 10))
    >>> writer = SegmentWriter(files, seed=5, next_number=numbers.__next__)
    >>> place = writer.append(BlobHead(7, 1, 0, 9, 0, 9, codec=0, raw_bytes=4), b"ids", b"body")
    >>> writer.sync()
    >>> place
    BlobPlace(segment=1, offset=64, head_bytes=71, body_bytes=4)
    """

    def __init__(
        self,
        files: Files,
        seed: int,
        next_number: Callable[[], int],
        segment_bytes: int = SEGMENT_BYTES,
        *,
        room: Callable[[int], int] | None = None,
    ) -> None:
        self.number: int | None = None
        """Number of the segment that is being written; None if the next blob begins one."""
        self.unsynced_bytes = 0
        """Size of the blobs that the next `sync` makes durable."""
        self._files = files
        self._seed = seed
        self._next_number = next_number
        self._room = room or (lambda _needed: files.free_bytes())
        self._segment_bytes = segment_bytes
        self._end = 0
        self._allocated = 0
        self._unsynced: list[str] = []
        self._unnamed = False
        self._broken: str | None = None

    def append(self, head: BlobHead, ids: bytes, body: bytes) -> BlobPlace:
        """Write a blob, without making it durable. Raises `OSError`: the disk may be full, or broken."""
        self._refuse_if_broken()
        size = blob_size(head_bytes(ids), len(body))
        number = self._number_for(size)
        place = BlobPlace(number, self._end, head_bytes(ids), len(body))
        parts = encode_blob(head, ids, body, segment=number, offset=place.offset, seed=self._seed)
        try:
            self._write(segment_name(number), parts)
        except OSError:
            self.number = None
            raise
        self._end += size
        self.unsynced_bytes += size
        return place

    def sync(self) -> None:
        """Make every blob durable that `append` returned. Raises `OSError`. After an error, it is not certain
        that any of them is durable, and the writer refuses everything."""
        self._refuse_if_broken()
        try:
            for name in self._unsynced:
                self._files.sync(name)
            if self._unnamed:
                self._files.sync_directory()
        except OSError as error:
            self._broken = f"an fsync of a segment failed: {error.strerror}"
            raise
        self._unnamed = False
        for name in self._unsynced:
            if self.number is None or name != segment_name(self.number):
                self._files.close(name)
        self._unsynced.clear()
        self.unsynced_bytes = 0

    def finish(self) -> None:
        """Make every blob durable and end the segment. The next blob begins a new one. Raises `OSError`."""
        self.sync()
        if self.number is not None:
            self._files.close(segment_name(self.number))
            self.number = None

    # --- parts ----------------------------------------------------------------------------------

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise OSError(errno.EIO, f"{self._broken}; no segment is written until a restart")

    def _number_for(self, size: int) -> int:
        """Return the segment to which a blob of this size is written next, with space for it."""
        number = self.number
        if number is not None and self._end + size > self._segment_bytes:
            self.finish()
            number = None
        if number is None:
            return self._begin(size)
        name = segment_name(number)
        if self._end + size > self._allocated:
            allocated = self._space_for(size)
            self._files.allocate(name, allocated)
            self._allocated = allocated
        if name not in self._unsynced:
            self._unsynced.append(name)
        return number

    def _begin(self, size: int) -> int:
        """Create the next segment with space for a blob of this size."""
        files = self._files
        self._end, self._allocated = FILE_HEADER_BYTES, 0
        allocated = self._space_for(size)
        number = self._next_number()
        name = segment_name(number)
        if name in files.names():
            raise FileExistsError(errno.EEXIST, "a segment with this number exists already", name)
        self._unnamed = True
        try:
            files.create(name, allocated)
            files.write(name, 0, segment_header(number, self._seed))
        except OSError:
            self._discard(name)
            raise
        self._allocated = allocated
        self._unsynced.append(name)
        self.number = number
        return number

    def _discard(self, name: str) -> None:
        """Remove a segment without a blob. It may stay if that fails: no record names it."""
        try:
            self._files.remove(name)
        except OSError:
            self._files.close(name)

    def _space_for(self, size: int) -> int:
        """Return the new size of the file. Raises `OSError` if the disk has too little space, because trying to
        allocate it would keep the disk busy for each refused blob."""
        needed = self._end + size
        step = min(STEP_BYTES, max(_FIRST_STEP_BYTES, self._allocated))
        ahead = max(needed, min(self._allocated + step, self._segment_bytes))
        free = self._room(needed - self._allocated)
        for wanted in (ahead, needed):
            if wanted - self._allocated <= free:
                return wanted
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _write(self, name: str, parts: tuple[bytes, bytes, bytes]) -> None:
        if len(parts[1]) <= _JOIN_BYTES:
            self._files.write(name, self._end, b"".join(parts))
            return
        offset = self._end
        for part in parts:
            self._files.write(name, offset, part)
            offset += len(part)
