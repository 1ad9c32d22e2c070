"""Positions in a stream, and the span between two of them.

A position has an id and a count: how many entries had ever been added to the stream up to that id. The
difference of two counts is the number of entries between the positions, so a reader detects missing ones.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.common.model import MIN_ID, StreamID


class Position(NamedTuple):
    """A position in a stream: up to ``id`` (included), ``added`` entries had ever been added."""

    id: StreamID
    added: int


BEGINNING = Position(MIN_ID, 0)
"""The position before the first entry of any stream."""


class ReadSpan(NamedTuple):
    """What one batch reads of one stream: after ``start``, up to ``end``.

    ``end.added - start.added`` is the number of entries to be read.
    """

    start: Position
    end: Position

    @property
    def entries(self) -> int:
        return self.end.added - self.start.added
