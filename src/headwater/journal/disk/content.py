"""`Content`: the content of a file, read on demand."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import cached_property


class Content:
    """The content of a file at one moment. It may be read later.

        size     its length in bytes
        used     the offset after its last byte that is not zero

    Bytes that another process writes after ``used`` in the meantime are not part of the content: zeros are read
    instead. ``read_into`` fills a view with the file's bytes from an offset on, and returns their number.
    """

    def __init__(self, size: int, used: int, read_into: Callable[[memoryview, int], int]) -> None:
        self.size = size
        self.used = used
        self._read_into = read_into

    def part(self, offset: int, limit: int) -> memoryview:
        """Return ``limit`` bytes from ``offset`` on, or fewer if the file ends before."""
        data = memoryview(bytearray(max(0, min(limit, self.size - offset))))
        self._fill(data, offset)
        return data.toreadonly()

    @cached_property
    def data(self) -> memoryview:
        """The whole content."""
        if not self.size:
            return memoryview(b"")
        # Untouched pages cost nothing, and most of a new file is zeros. Private pages cost half as much as
        # pages that could be shared.
        data = memoryview(mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self._fill(data, 0)
        return data.toreadonly()

    def _fill(self, data: memoryview, offset: int) -> None:
        written = data[: max(0, self.used - offset)]
        if written:
            self._read_into(written, offset)
