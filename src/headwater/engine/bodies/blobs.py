"""The engine's view of blobs: closed blocks of entries on disk.

    SealedBlock ─┐
    SealedBlock ─┴▶ Blob ── place ──▶ BlobSource ── body, ids ──▶ segments on disk
                    │
                    └▶ SegmentUse: number of live bytes in each segment

Rule 1. Blocks with the same bytes, after COPY, share one `Blob`. The blob is counted in `SegmentUse` as long
        as anything refers to it, including a snapshot that another thread reads.
Rule 2. Any thread may free a `Blob`, which only adds a note to `SegmentUse`. `SegmentUse.segments`, which is
        called under the node's lock like every mutator, subtracts the blob's bytes.
Rule 3. The ids of a stored block are in memory. `BlobSource.ids` is needed only to replay the fact ``stored``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

CHECKSUM_BYTES = 4
"""The size of the checksum after the body of a blob (`headwater.journal.segments.blobs` has the format)."""


class BlobPlace(NamedTuple):
    """Position of a blob: the number of its segment, and its offset in bytes. ``head_bytes`` is the size of one
    copy of head and ids with its checksum; ``body_bytes`` is the size of the body without its checksum.

    >>> place = BlobPlace(3, 64, head_bytes=100, body_bytes=400)
    >>> place.body_offset, place.second_offset, place.size, place.end
    (164, 568, 604, 668)
    """

    segment: int
    offset: int
    head_bytes: int
    body_bytes: int

    @property
    def body_offset(self) -> int:
        """The offset of the body in the segment."""
        return self.offset + self.head_bytes

    @property
    def second_offset(self) -> int:
        """The offset of the second copy of head and ids."""
        return self.body_offset + self.body_bytes + CHECKSUM_BYTES

    @property
    def size(self) -> int:
        """The size of the blob in bytes."""
        return blob_size(self.head_bytes, self.body_bytes)

    @property
    def end(self) -> int:
        """The offset after the blob."""
        return self.offset + self.size


def blob_size(head_bytes: int, body_bytes: int) -> int:
    """Return the size of a blob with parts of these sizes."""
    return 2 * head_bytes + body_bytes + CHECKSUM_BYTES


class BlobSource(Protocol):
    """Reads blobs. Any thread may call the methods. A damaged blob raises `headwater.errors.JournalDamaged`."""

    def body(self, place: BlobPlace) -> bytes:
        """Return the body of a blob. May wait for the disk."""
        ...

    def cached_body(self, place: BlobPlace) -> bytes | None:
        """Return the body of a blob, or None if reading it would wait for the disk."""
        ...

    def ids(self, place: BlobPlace) -> bytes:
        """Return the packed ids of a blob. May wait for the disk."""
        ...

    def read_ahead(self, places: Sequence[BlobPlace]) -> None:
        """Ask the system to read these bodies soon."""
        ...


class SegmentUse:
    """Number of bytes of live blobs in each segment. A blob is live while anything refers to it.

    >>> use = SegmentUse()
    >>> blob = Blob(use, BlobPlace(3, 64, 100, 400))
    >>> use.segments()
    {3: 604}
    >>> del blob
    >>> use.segments()
    {}
    """

    def __init__(self) -> None:
        self._live: dict[int, int] = {}
        self.left: deque[tuple[int, int]] = deque()
        """Segment and size of each blob that was freed or moved elsewhere, and is still counted in the segment."""

    def add(self, segment: int, size: int) -> None:
        """Count a blob."""
        self._live[segment] = self._live.get(segment, 0) + size

    def segments(self) -> dict[int, int]:
        """Return segment → bytes of live blobs, for the segments that have any."""
        live, left = self._live, self.left
        while left:
            segment, size = left.popleft()
            live[segment] -= size
            if not live[segment]:
                del live[segment]
        return live


class Blob:
    """A blob to which sealed blocks refer, and its place."""

    def __init__(self, use: SegmentUse, place: tuple[int, int, int, int]) -> None:
        self._use = use
        self.segment, self._offset, self._head_bytes, self._body_bytes = place
        self.shared = False
        """True if several blocks may refer to it (rule 1)."""
        use.add(self.segment, self._size())

    def __del__(self) -> None:
        self._use.left.append((self.segment, self._size()))

    def place(self) -> BlobPlace:
        """Return the position of the blob."""
        return BlobPlace(self.segment, self._offset, self._head_bytes, self._body_bytes)

    def move(self, place: tuple[int, int, int, int]) -> None:
        """Change the place, for all blocks that refer to the blob."""
        self._use.left.append((self.segment, self._size()))
        self.segment, self._offset, self._head_bytes, self._body_bytes = place
        self._use.add(self.segment, self._size())

    def _size(self) -> int:
        size: int = blob_size(self._head_bytes, self._body_bytes)
        return size
