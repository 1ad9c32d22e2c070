"""Chooses how many entries are read together, so that their content takes a few megabytes.

A page of ids is short, but each of its entries may have megabytes of content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

FIRST_ENTRIES = 10
"""Number of entries of the first read. Later reads adapt to the size of earlier entries."""

MOST_ENTRIES = 500

CONTENT_BYTES = 4_000_000
"""Approximate size of the content of one read, in bytes."""


class ContentPages:
    """Adapts the number of entries of each read. ``entries`` is the number for the next read."""

    def __init__(self) -> None:
        self.entries = FIRST_ENTRIES

    def of(self, ids: Sequence[T]) -> Iterator[Sequence[T]]:
        """Yield parts of ``ids``. After each part, the caller must pass the entries of this part to `read`."""
        first = 0
        while first < len(ids):
            part = ids[first : first + self.entries]
            first += len(part)
            yield part

    def read(self, entries: Sequence[Sequence[bytes]]) -> int:
        """Adapt to entries that were read. An entry is its fields and values. Return the size of all in bytes.

        >>> pages = ContentPages()
        >>> pages.read([[b"f", bytes(1_000_000)]] * 10), pages.entries
        (10000010, 3)
        """
        size = sum(len(word) for fields in entries for word in fields)
        if size:  # 0 if all entries were gone
            fitting = len(entries) * CONTENT_BYTES // size
            self.entries = max(1, min(MOST_ENTRIES, fitting))
        return size
