"""The value types that all packages share: stream ids and ranges of them.

The engine and the hot commands pass an id as two numbers, ``ms`` and ``seq``, so that the compiled build needs no
object for an id. Callers of the public API get a `StreamID`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

MAX_U64 = 2**64 - 1
"""Largest value of either half of an id (Redis: ``UINT64_MAX``)."""
MIN_I64, MAX_I64 = -(2**63), 2**63 - 1


class StreamID(NamedTuple):
    """The id of an entry: milliseconds and a sequence number. Ordered by ``ms``, then by ``seq``.

    >>> StreamID.parse("1526569498055-0") < StreamID(1526569498055, 1)
    True
    >>> str(StreamID(5, 1))
    '5-1'

    Source: the command page of XADD, "Specifying a Stream ID as an argument".
    """

    ms: int
    """Unix milliseconds at which the entry was added, if the store chose the id. An unsigned 64-bit
    integer."""
    seq: int
    """The number of the entry within its millisecond, starting at 0. An unsigned 64-bit integer."""

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    @classmethod
    def parse(cls, text: str | bytes) -> StreamID:
        """Return the id that ``text`` contains in the form that a server sends: ``<ms>-<seq>``, both decimal.

        Raises ``ValueError`` for any other text.
        """
        words = text.decode("ascii", "replace") if isinstance(text, bytes) else text
        ms, dash, seq = words.partition("-")
        if not (dash and ms.isascii() and ms.isdigit() and seq.isascii() and seq.isdigit()):
            raise ValueError(f"not a stream id: {words!r} (expected <milliseconds>-<sequence>)")
        found = cls(int(ms), int(seq))
        if found.ms > MAX_U64 or found.seq > MAX_U64:
            raise ValueError(f"not a stream id: {words!r} (each half must fit in 64 bits)")
        return found


UNKNOWN = -1
"""Stands for an unknown number of entries that a group has read. Nil on the wire."""


def id_before(ms: int, seq: int) -> tuple[int, int]:
    """Return the greatest id below ``ms-seq``, which must not be 0-0."""
    return (ms, seq - 1) if seq else (ms - 1, MAX_U64)


def id_after(ms: int, seq: int) -> tuple[int, int]:
    """Return the smallest id above ``ms-seq``, which must not be the greatest id."""
    return (ms, seq + 1) if seq < MAX_U64 else (ms + 1, 0)


def flat_words(rows: Iterable[Iterable[int]]) -> array[int]:
    """Return ids, or records that begin with an id, as consecutive words: the form in which the engine accepts
    many of them in one call.

    >>> flat_words([(5, 1), (5, 2)])
    array('Q', [5, 1, 5, 2])
    """
    return array("Q", [word for row in rows for word in row])


def id_pairs(words: array[int]) -> list[tuple[int, int]]:
    """Return the ids in the words that `flat_words` returned.

    >>> id_pairs(flat_words([(5, 1), (5, 2)]))
    [(5, 1), (5, 2)]
    """
    return list(zip(words[::2], words[1::2], strict=True))


MIN_ID = StreamID(0, 0)
MAX_ID = StreamID(MAX_U64, MAX_U64)


class IDRange(NamedTuple):
    """A range of ids that includes both ends. It is empty if ``start > end``. Source: the command page of
    XRANGE."""

    start: StreamID
    """The first id of the range."""
    end: StreamID
    """The last id of the range."""
