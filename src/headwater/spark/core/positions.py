"""Positions in a stream, and the span between two of them.

A position has an id and a count: the number of entries that had ever been added to the stream up to that id.
The difference of two counts is the number of entries between the positions, so a reader detects missing entries.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.common.model import MIN_ID, StreamID, id_after, id_before


class Position(NamedTuple):
    """A position in a stream. ``added`` is the number of entries ever added up to ``id``, included."""

    id: StreamID
    added: int


BEGINNING = Position(MIN_ID, 0)
"""The position before the first entry of any stream."""


class ReadSpan(NamedTuple):
    """The part of one stream that a batch reads: after ``start``, up to ``end``.

    ``end.added - start.added`` is the number of entries to be read.
    """

    start: Position
    end: Position

    @property
    def entries(self) -> int:
        return self.end.added - self.start.added


# --- the neighbours of an id ----------------------------------------------------------------------


def before(id_: StreamID) -> StreamID:
    """Return the greatest id below ``id_``."""
    return StreamID(*id_before(*id_))


def after(id_: StreamID) -> StreamID:
    """Return the smallest id above ``id_``."""
    return StreamID(*id_after(*id_))


# --- the state of a stream, as its server reports it ----------------------------------------------


class StreamState(NamedTuple):
    """A stream's state, as XINFO STREAM reports it. ``first_id`` is 0-0 if the stream is empty."""

    length: int
    last_id: StreamID
    max_deleted_id: StreamID
    entries_added: int
    first_id: StreamID

    @property
    def removed(self) -> int:
        """The number of entries that were ever removed from the stream, in any way."""
        return self.entries_added - self.length
