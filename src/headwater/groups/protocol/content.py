"""How many entries are read together, so that their content takes a few megabytes.

A page of ids is short, and the entries may have 10 MB each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

FIRST_ENTRIES = 10
"""How many entries are read first. The next ones adapt to the size of those before."""

MOST_ENTRIES = 500

CONTENT_BYTES = 4_000_000
"""About how much content is read together."""


class ContentPages:
    """The number of entries of the next read."""

    def __init__(self) -> None:
        self.entries = FIRST_ENTRIES

    def of(self, ids: Sequence[T]) -> Iterator[Sequence[T]]:
        """Yield parts of ``ids``. Between two of them, `read` is given the entries of the first."""
        first = 0
        while first < len(ids):
            part = ids[first : first + self.entries]
            first += len(part)
            yield part

    def read(self, entries: Sequence[Sequence[bytes]]) -> int:
        """Adapt to entries that were read, each as its fields and values. Return their size.

        >>> pages = ContentPages()
        >>> pages.read([[b"f", bytes(1_000_000)]] * 10), pages.entries
        (10000010, 3)
        """
        size = sum(len(word) for fields in entries for word in fields)
        if size:  # else all were gone
            fitting = len(entries) * CONTENT_BYTES // size
            self.entries = max(1, min(MOST_ENTRIES, fitting))
        return size
