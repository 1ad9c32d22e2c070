"""Reads the values of facts, in the order in which `headwater.engine.facts.facts` wrote them.

    data   …│ facts of a record group           │…      any memoryview of bytes, often of a whole file
            ▲ start      ▲ at                   ▲ end

Rule 1. Nothing is read beyond ``end``, and a length is compared with the number of bytes left before
        memory is allocated: an incomplete fact is a `ValueError`.
"""

from __future__ import annotations

from array import array

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd and views_c.pxd have them in C
    from headwater.native.memory import empty
    from headwater.native.views import (
        append_view,
        cut_view,
        view_i64,
        view_u8,
        view_u32,
        view_u64,
        view_words,
    )

_LIKE: array[int] = array("Q")


class FactReader:
    """Reads from ``at`` on. ``kind`` is the kind of the current fact, ``now_ms`` the time of its group.

    >>> reader = FactReader()
    >>> reader.attach(memoryview(bytes((0x11, 3, 1, 0, 0, 0, 97))))
    >>> reader.select(0, 7, now_ms=5)
    >>> reader.take_u8(), reader.take_u8(), reader.take_text(), reader.left()
    (17, 3, b'a', 0)
    """

    def __init__(self) -> None:
        self.data = memoryview(b"")
        self.start = self.at = self.end = 0
        self.kind = 0
        self.now_ms = 0

    def attach(self, data: memoryview) -> None:
        """Read from ``data`` from now on."""
        if data.itemsize != 1 or not data.c_contiguous:
            raise ValueError("facts are bytes without gaps")
        self.data = data
        self.start = self.at = self.end = 0

    def select(self, start: int, end: int, now_ms: int) -> None:
        """Select the facts from ``start`` to ``end``-1, a record group of the time ``now_ms``, for reading."""
        if not 0 <= start <= end <= len(self.data):
            raise ValueError(f"a group from {start} to {end} in {len(self.data)} bytes")
        self.start = self.at = start
        self.end = end
        self.now_ms = now_ms

    def left(self) -> int:
        """Return the number of bytes left."""
        return self.end - self.at

    # --- numbers --------------------------------------------------------------------------------

    def take_u8(self) -> int:
        at = self._pass(1)
        return view_u8(self.data, at)

    def take_u32(self) -> int:
        at = self._pass(4)
        return view_u32(self.data, at)

    def take_u64(self) -> int:
        at = self._pass(8)
        return view_u64(self.data, at)

    def take_i64(self) -> int:
        at = self._pass(8)
        return view_i64(self.data, at)

    def take_id(self) -> tuple[int, int]:
        """Read an entry's id, two u64."""
        at = self._pass(16)
        return view_u64(self.data, at), view_u64(self.data, at + 8)

    def take_ids(self, count: int) -> list[tuple[int, int]]:
        """Read ``count`` ids."""
        at = self._pass(16 * count)
        return [
            (view_u64(self.data, at + 16 * one), view_u64(self.data, at + 16 * one + 8))
            for one in range(count)
        ]

    def take_words(self, count: int) -> array[int]:
        """Read ``count`` u64."""
        at = self._pass(8 * count)
        return view_words(_LIKE, self.data, at, count)

    # --- bytes ----------------------------------------------------------------------------------

    def take_bytes(self, length: int) -> bytes:
        at = self._pass(length)
        return cut_view(self.data, at, at + length)

    def take_into(self, length: int, target: bytearray) -> None:
        """Replace the content of ``target`` with the next ``length`` bytes."""
        at = self._pass(length)
        empty(target)
        append_view(target, self.data, at, at + length)

    def take_text(self) -> bytes:
        """Read a text: a u32 length and its bytes."""
        return self.take_bytes(self.take_u32())

    def take_texts(self) -> list[bytes]:
        """Read a u32 number of texts, then the texts."""
        count = self.take_u32()
        return [self.take_text() for _ in range(count)]

    def _pass(self, length: int) -> int:
        """Move ``at`` by ``length`` bytes. Return its previous value."""
        at = self.at
        if length > self.end - at:
            raise ValueError(
                f"the group ends within a fact of kind 0x{self.kind:02x}: {self.end - at} bytes of {length}"
            )
        self.at = at + length
        return at
