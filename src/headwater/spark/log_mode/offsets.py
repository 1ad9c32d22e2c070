"""The offset of a query, which names for each stream the part that the offset's batch reads.

An end offset describes its batch completely. ``from`` and ``to`` are the ids between which the batch reads
(``from`` excluded, ``to`` included). ``added_from`` and ``added_to`` are the numbers of entries that had
ever been added to the stream up to these ids. A replay after a crash therefore reads exactly the batch in Spark's
log. It does not determine the query's beginning again: that of ``startingId=latest`` would have changed.

The offset before the first batch does not have ``from``. It differs from every later offset, so Spark logs the
first batch even if that batch is empty, and "latest" is determined once for all runs.

In addition to the streams, an offset holds the query's own id (`QUERY`), because Spark does not pass an id
to a reader. The first offset gets a random id, and each offset copies it from the previous one. An offset also
holds the positions up to which removed streams were read, if there are any (`REMOVED`), as ``[to, added_to]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.common.model import StreamID
from headwater.errors import DeclarationError
from headwater.spark.core.options import QUERY, REMOVED
from headwater.spark.core.positions import Position, ReadSpan

Offset = dict[str, Any]
"""An offset as Spark stores it: a dict that is written as JSON."""


def initial_offset(positions: Mapping[str, Position], *, query: str | None = None) -> Offset:
    """Return the offset before the first batch."""
    return _signed(query) | {
        stream: {"to": str(position.id), "added_to": position.added}
        for stream, position in positions.items()
    }


def end_offset(
    spans: Mapping[str, ReadSpan],
    *,
    query: str | None = None,
    removed: Mapping[str, Position] | None = None,
) -> Offset:
    """Return the offset at the end of a batch, with the positions of ``removed`` streams.

    >>> at = Position(StreamID(5, 1), 7)
    >>> end_offset({"orders": ReadSpan(at, at)})
    {'orders': {'from': '5-1', 'added_from': 7, 'to': '5-1', 'added_to': 7}}
    """
    gone = {stream: [str(at.id), at.added] for stream, at in (removed or {}).items()}
    return (
        _signed(query)
        | ({REMOVED: gone} if gone else {})
        | {
            stream: {
                "from": str(span.start.id),
                "added_from": span.start.added,
                "to": str(span.end.id),
                "added_to": span.end.added,
            }
            for stream, span in spans.items()
        }
    )


def _signed(query: str | None) -> Offset:
    return {} if query is None else {QUERY: query}


def query_of(offset: Offset) -> str | None:
    """Return the id of the query that made the offset; None if the offset does not have it."""
    found = offset.get(QUERY)
    return found if isinstance(found, str) else None


def streams_of(offset: Offset) -> list[str]:
    """Return the streams in the offset, without the removed ones."""
    return [name for name in offset if name not in (QUERY, REMOVED)]


def positions_of(offset: Offset) -> dict[str, Position]:
    """Return the position up to which each stream has been read."""
    return {stream: _position(offset, stream, "to", "added_to") for stream in streams_of(offset)}


def removed_of(offset: Offset) -> dict[str, Position]:
    """Return the positions up to which removed streams had been read, in the order of their removal."""
    try:
        return {
            stream: Position(StreamID.parse(to), int(added))
            for stream, (to, added) in offset.get(REMOVED, {}).items()
        }
    except (TypeError, ValueError, AttributeError) as error:
        raise _foreign(offset, REMOVED) from error


def spans_of(offset: Offset) -> dict[str, ReadSpan]:
    """Return the span of each stream in the batch that ends at ``offset``; empty before the first batch."""
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
        raise _foreign(offset, stream) from error


def _foreign(offset: Offset, name: str) -> DeclarationError:
    return DeclarationError(
        f"the checkpoint contains an offset that is not from a query in log mode, at {name!r}: "
        f"{offset[name]!r}. Was it written with the option group, or by another source? Each "
        "query needs its own checkpointLocation; set another one for this query."
    )
