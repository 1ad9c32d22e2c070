"""The offset of a query: for each stream, what the batch that ends there has read.

A batch is named by its end offset alone: ``from`` and ``to`` are the ids between which it reads
(``from`` excluded, ``to`` included), ``added_from`` and ``added_to`` how many entries had ever been
added to the stream up to each. So a replay after a crash reads what the log says, and never asks
where the query began: with ``startingId=latest`` that answer would have changed meanwhile.

The offset before the first batch has no ``from``. It differs from every later one, so the first
batch is always logged, even when it is empty, and "latest" is settled once for all runs.

Beside the streams stands the query's own id (`QUERY`): Spark does not tell a reader which query it
serves. It is drawn with the first offset and handed on from one to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.errors import DeclarationError
from headwater.model import StreamID
from headwater.spark.core.options import QUERY
from headwater.spark.core.positions import Position, ReadSpan

Offset = dict[str, Any]
"""An offset as Spark keeps it: a dict that is written as JSON."""


def initial_offset(positions: Mapping[str, Position], *, query: str | None = None) -> Offset:
    """The offset before the first batch."""
    return _signed(query) | {
        stream: {"to": str(position.id), "added_to": position.added}
        for stream, position in positions.items()
    }


def end_offset(spans: Mapping[str, ReadSpan], *, query: str | None = None) -> Offset:
    """The offset at the end of a batch.

    >>> at = Position(StreamID(5, 1), 7)
    >>> end_offset({"orders": ReadSpan(at, at)})
    {'orders': {'from': '5-1', 'added_from': 7, 'to': '5-1', 'added_to': 7}}
    """
    return _signed(query) | {
        stream: {
            "from": str(span.start.id),
            "added_from": span.start.added,
            "to": str(span.end.id),
            "added_to": span.end.added,
        }
        for stream, span in spans.items()
    }


def _signed(query: str | None) -> Offset:
    return {} if query is None else {QUERY: query}


def query_of(offset: Offset) -> str | None:
    """The id of the query that the offset is of."""
    found = offset.get(QUERY)
    return found if isinstance(found, str) else None


def streams_of(offset: Offset) -> list[str]:
    """The streams that the offset is of."""
    return [name for name in offset if name != QUERY]


def positions_of(offset: Offset) -> dict[str, Position]:
    """Up to where an offset has read, for each stream."""
    return {stream: _position(offset, stream, "to", "added_to") for stream in streams_of(offset)}


def spans_of(offset: Offset) -> dict[str, ReadSpan]:
    """What the batch that ends at ``offset`` reads; nothing, before the first batch."""
    return {
        stream: ReadSpan(
            _position(offset, stream, "from", "added_from"),
            _position(offset, stream, "to", "added_to"),
        )
        for stream in streams_of(offset)
        if not (isinstance(offset[stream], dict) and "from" not in offset[stream])
    }


def _position(offset: Offset, stream: str, name: str, added: str) -> Position:
    try:
        values = offset[stream]
        return Position(StreamID.parse(values[name]), int(values[added]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DeclarationError(
            f"the checkpoint holds an offset that no query in log mode has written, at {stream!r}: "
            f"{offset[stream]!r}. Was it written with the option group, or by another source? A query "
            "keeps its own checkpointLocation; give this one another."
        ) from error
