"""What the engine knows about blobs: closed blocks of entries that are on disk.

    SealedBlock ─┐
    SealedBlock ─┴▶ Blob ── place ──▶ BlobSource ── body, ids ──▶ segments on disk
                    │
                    └▶ SegmentUse: how many live bytes each segment has

Rule 1. Blocks with the same bytes, after COPY, share one `Blob`. It is counted in `SegmentUse` as long as
        anything refers to it, also a snapshot that another thread reads.
Rule 2. A `Blob` may be freed by any thread. Then it only notes that; `SegmentUse.segments` counts it, under
        the node's lock like every mutator.
Rule 3. The ids of a stored block are in memory. `BlobSource.ids` is needed only to replay the fact ``stored``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

_CHECKSUM_BYTES = 4


class StoredPlace(NamedTuple):
    """Where a blob is. The fields are those of `headwater.journal.blobs.BlobPlace`."""

    segment: int
    offset: int
    head_bytes: int
    body_bytes: int


class BlobSource(Protocol):
    """Reads blobs. Any thread may call the methods. A damaged blob raises `headwater.errors.JournalDamaged`."""

    def body(self, place: StoredPlace) -> bytes:
        """Return the body of a blob. May wait for the disk."""
        ...

    def cached_body(self, place: StoredPlace) -> bytes | None:
        """Return the body of a blob, None if that would wait for the disk."""
        ...

    def ids(self, place: StoredPlace) -> bytes:
        """Return the packed ids of a blob. May wait for the disk."""
        ...

    def read_ahead(self, places: Sequence[StoredPlace]) -> None:
        """Ask the system to read these bodies soon."""
        ...


class SegmentUse:
    """How many bytes of blobs that are referred to each segment has.

    >>> use = SegmentUse()
    >>> blob = Blob(use, StoredPlace(3, 64, 100, 400))
    >>> use.segments()
    {3: 604}
    >>> del blob
    >>> use.segments()
    {}
    """

    def __init__(self) -> None:
        self._live: dict[int, int] = {}
        self.left: deque[tuple[int, int]] = deque()
        """Segment and size of blobs that are not referred to any more and still counted."""

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
    """The place of a blob to which sealed blocks refer."""

    def __init__(self, use: SegmentUse, place: tuple[int, int, int, int]) -> None:
        self._use = use
        self.segment, self._offset, self._head_bytes, self._body_bytes = place
        self.shared = False
        """Whether several blocks may refer to it (rule 1)."""
        use.add(self.segment, self._size())

    def __del__(self) -> None:
        self._use.left.append((self.segment, self._size()))

    def place(self) -> StoredPlace:
        """Return where the blob is."""
        return StoredPlace(self.segment, self._offset, self._head_bytes, self._body_bytes)

    def move(self, place: tuple[int, int, int, int]) -> None:
        """Change the place, for all blocks that refer to the blob."""
        self._use.left.append((self.segment, self._size()))
        self.segment, self._offset, self._head_bytes, self._body_bytes = place
        self._use.add(self.segment, self._size())

    def _size(self) -> int:
        return 2 * self._head_bytes + self._body_bytes + _CHECKSUM_BYTES
