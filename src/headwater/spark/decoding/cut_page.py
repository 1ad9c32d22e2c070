"""A page whose columns are cut from the bytes of a regular reply (cutting.py)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import pyarrow as pa

from headwater.messages.keys import is_reserved
from headwater.spark.decoding.cutting import ReplyCutter, repeated
from headwater.spark.decoding.page import Page, Pairs


class CutPage(Page):
    """The entries of a complete reply.

    A page holds the reply's bytes and copies requested columns from them. Lists of ids and fields are made only on
    demand, for example if an error message shows an entry.
    """

    def __init__(self, reply: ReplyCutter) -> None:
        self._reply = reply

    def __len__(self) -> int:
        return self._reply.count

    @cached_property
    def ids(self) -> list[bytes]:  # type: ignore[override]
        return [self._reply.value(entry, 0) for entry in range(len(self))]

    @cached_property
    def bodies(self) -> list[list[bytes]]:  # type: ignore[override]
        return [self._body(entry) for entry in range(len(self))]

    def _body(self, entry: int) -> list[bytes]:
        named = enumerate(self._reply.names, 1)
        return [part for i, name in named for part in (name, self._reply.value(entry, i))]

    @property
    def last_id(self) -> bytes:
        return self._reply.value(len(self) - 1, 0)

    def ids_as_binary(self) -> pa.BinaryArray:
        return self._cut([0])

    def column(self, name: bytes) -> pa.BinaryArray:
        if name not in self._reply.names:
            return pa.nulls(len(self), pa.binary())
        return self._cut([1 + self._reply.names.index(name)])

    def all_pairs(self) -> Pairs:
        return self.pairs(reserved=True)  # every entry has the same names, without repetitions

    def pairs(self, *, reserved: bool) -> Pairs:
        shown = [
            part
            for part, name in enumerate(self._reply.names, 1)
            if reserved or not is_reserved(name)
        ]
        names = [self._reply.names[part - 1] for part in shown]
        starts = repeated([len(shown)], len(self))
        return (
            pa.Array.from_buffers(pa.int32(), len(self) + 1, [None, pa.py_buffer(starts)], 0),
            _binary(
                len(self) * len(names),
                repeated([len(name) for name in names], len(self)),
                b"".join(names) * len(self),
            ),
            self._cut(shown),
        )

    def _cut(self, parts: Iterable[int]) -> pa.BinaryArray:
        wanted = list(parts)
        if not wanted:
            return pa.array([], pa.binary())
        return _binary(len(self) * len(wanted), *self._reply.cut(wanted))


def _binary(values: int, offsets: bytearray, data: bytes | bytearray) -> pa.BinaryArray:
    return pa.Array.from_buffers(
        pa.binary(), values, [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0
    )
