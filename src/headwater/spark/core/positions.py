"""Places in a stream, and the span between two of them.

A place has an id and a count: how many entries had ever been added to the stream up to there. Two
counts say how many entries lie between two places, so a reader knows when some are missing.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.model import MIN_ID, StreamID


class Position(NamedTuple):
    """A place in a stream: up to ``id`` (included), ``added`` entries had ever been added."""

    id: StreamID
    added: int


BEGINNING = Position(MIN_ID, 0)
"""Where a stream that did not exist begins."""


class ReadSpan(NamedTuple):
    """What one batch reads of one stream: after ``start``, up to ``end``.

    ``end.added - start.added`` is the number of entries that are there to be read.
    """

    start: Position
    end: Position

    @property
    def entries(self) -> int:
        return self.end.added - self.start.added
