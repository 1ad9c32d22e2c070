"""Entries by column, independent of their origin; the input of all other decoding.

A `ListPage` is made from lists, as hiredis parses a reply or a group's reader collects entries. A `CutPage`
(cut_page.py) is cut from a regular reply's bytes. Both have Arrow columns, so casting and rows need only one
implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import accumulate, chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ProtocolError
from headwater.messages.keys import is_reserved
from headwater.spark.decoding import numbers

Pairs = tuple[pa.Int32Array, pa.BinaryArray, pa.BinaryArray]

MAX_TIMESTAMP_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last year in SQL, Python and most readers of Parquet."""

SAFE_DIGITS: Final = len(str(MAX_TIMESTAMP_MS)) - 1
INSTANT: Final = pa.timestamp("us", "UTC")


class Page(ABC):
    """Entries in their given order. If an entry repeats a name, the last value counts."""

    ids: list[bytes]
    """Ids as the server wrote them."""

    bodies: list[list[bytes]]
    """The fields of each entry, a flat list of names and values."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def last_id(self) -> bytes:
        return self.ids[-1]

    @abstractmethod
    def ids_as_binary(self) -> pa.BinaryArray:
        """Return the ids as bytes."""

    @abstractmethod
    def column(self, name: bytes) -> pa.BinaryArray:
        """Return the value of field ``name`` in each entry; null where the field is missing."""

    @abstractmethod
    def pairs(self, *, reserved: bool) -> Pairs:
        """Return the parts of a column of maps: the offsets of entries and the end, the names, the values.

        Reserved fields are omitted unless ``reserved`` is true.
        """

    def all_pairs(self) -> Pairs:
        """Return all fields in their order, including reserved and repeated ones, in the form of `pairs`."""
        bodies = self.bodies
        starts = list(accumulate((len(body) // 2 for body in bodies), initial=0))
        flat = list(chain.from_iterable(bodies))
        return _pairs(starts, flat[::2], flat[1::2])

    def id_column(self) -> pa.StringArray:
        """Return the ids as strings."""
        try:
            return self.ids_as_binary().cast(pa.string())
        except pa.ArrowInvalid as error:
            raise ProtocolError(f"the server sent an id that is not text: {error}") from None

    def moments(self) -> pa.TimestampArray:
        """Return the ids' milliseconds as timestamps; null for ids beyond `MAX_TIMESTAMP_MS`."""
        if numbers.COMPILED:
            found = parsed(self.ids_as_binary(), numbers.id_instants, INSTANT)
            if found is not None:
                return found
        texts = self.id_column()
        dashes = pc.min_max(pc.find_substring(texts, "-"))
        first, last = dashes["min"].as_py(), dashes["max"].as_py()
        try:
            if first == last and first is not None and first <= SAFE_DIGITS:
                moments = pc.utf8_slice_codeunits(texts, 0, first).cast(pa.int64())
                return moments.cast(pa.timestamp("ms", "UTC")).cast(INSTANT)
            milliseconds = [int(id_[: id_.index(b"-")]) for id_ in self.ids]
        except ValueError:
            raise ProtocolError("the server sent an entry with an invalid stream id") from None
        kept = [ms * 1000 if ms <= MAX_TIMESTAMP_MS else None for ms in milliseconds]
        return pa.array(kept, pa.int64()).cast(INSTANT)


class ListPage(Page):
    """Entries from a list of ids and a list of bodies of the same length.

    >>> page = ListPage([b"5-1", b"6-0"], [[b"a", b"b"], [b"c", b"d"]])
    >>> page.column(b"a").to_pylist()
    [b'b', None]
    """

    def __init__(self, ids: list[bytes], bodies: list[list[bytes]]) -> None:
        assert len(ids) == len(bodies), f"{len(ids)} ids for {len(bodies)} bodies"
        self.ids = ids
        self.bodies = bodies
        self._searched = False
        self._names: list[bytes] | None = None  # the names of every entry, if all have the same
        self._flat: list[bytes] = []
        self._dicts: list[dict[bytes, bytes]] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def ids_as_binary(self) -> pa.BinaryArray:
        return pa.array(self.ids, pa.binary())

    def _find_regular(self) -> None:
        """Check whether every entry has the same names in the same order, as typed producers write them.

        If so, columns are slices of the flat list of all fields, which C code makes.
        """
        if self._searched or not self.bodies:
            return
        self._searched = True
        names = self.bodies[0][::2]
        if len(set(names)) < len(names):
            return
        flat = list(chain.from_iterable(self.bodies))
        if len(flat) == 2 * len(names) * len(self) and flat[::2] == names * len(self):
            self._names, self._flat = names, flat

    def column(self, name: bytes) -> pa.BinaryArray:
        self._find_regular()
        if self._names is not None:
            if name not in self._names:
                return pa.nulls(len(self), pa.binary())
            place = self._names.index(name)
            return pa.array(self._flat[2 * place + 1 :: 2 * len(self._names)], pa.binary())
        if self._dicts is None:
            self._dicts = [dict(zip(body[::2], body[1::2], strict=True)) for body in self.bodies]
        return pa.array([values.get(name) for values in self._dicts], pa.binary())

    def pairs(self, *, reserved: bool) -> Pairs:
        self._find_regular()
        if self._names is not None and (reserved or not any(map(is_reserved, self._names))):
            step = len(self._names)
            starts = list(range(0, step * len(self) + 1, step)) if step else [0] * (len(self) + 1)
            return _pairs(starts, self._flat[::2], self._flat[1::2])
        dicts = [
            {
                name: value
                for name, value in zip(body[::2], body[1::2], strict=True)
                if reserved or not is_reserved(name)
            }
            for body in self.bodies
        ]
        starts = list(accumulate(map(len, dicts), initial=0))
        names = list(chain.from_iterable(dicts))
        return _pairs(starts, names, [value for values in dicts for value in values.values()])


def _pairs(starts: list[int], names: list[bytes], values: list[bytes]) -> Pairs:
    return pa.array(starts, pa.int32()), pa.array(names, pa.binary()), pa.array(values, pa.binary())


def one_by_one(page: Page) -> Iterator[Page]:
    """Yield each entry as a page of its own, because ``page`` is too large for Arrow's offsets (int32)."""
    for id_, body in zip(page.ids, page.bodies, strict=True):
        yield ListPage([id_], [body])


def parsed(
    texts: pa.BinaryArray,
    parse: Callable[..., tuple[bytearray, int] | None],
    type_: pa.DataType,
    *arguments: int,
) -> pa.Array | None:
    """Convert ``texts`` to ``type_`` with ``parse``, a function of numbers.py; None if this is not possible."""
    validity, offsets, data = texts.buffers()
    if data is None or texts.offset:
        return None
    places = memoryview(offsets).cast("i")[: len(texts) + 1]
    found = parse(places, memoryview(data).cast("B"), *arguments)
    # Every empty text must be a null, because an empty value is not a number or time.
    if found is None or found[1] != texts.null_count:
        return None
    return pa.Array.from_buffers(
        type_, len(texts), [validity, pa.py_buffer(found[0])], texts.null_count
    )
