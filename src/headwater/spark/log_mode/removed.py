"""Streams under a pattern whose key is gone: finds lost entries, and remembers the positions of a query.

Only streams under a pattern may be missing. A stream that was read to its end and then deleted has not lost
entries. The query drops it from its offset, and remembers the position up to which it was read. If the stream
comes back (RENAME, a resharding), reading continues there. If it was created again, it is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.spark.core.completeness import Finding, was_set_back
from headwater.spark.core.planning.planning import Look
from headwater.spark.core.positions import BEGINNING, Position, StreamState

MOST: Final = 1000
"""Maximum number of removed streams that a query remembers. Each takes some 60 bytes in every offset."""


def finding_of(stream: str, at: Position, then: StreamState | None) -> Finding | None:
    """Return the finding if entries were lost when the key of ``stream``, read up to ``at``, was removed; else None.

    ``then`` is the state that the stream reported at this run's last look; None without such a look. Entries that
    were added after that look, and removed with the key, are not noticed.
    """
    if then is None:
        if at == BEGINNING:
            return None
        return Finding(
            stream,
            certain=False,
            text=f"stream {stream!r} was removed (DEL, RENAME) while the query did not run: it had been read up to "
            f"{at.id} ({at.added} entries added), and whether entries were added after that is unknown",
        )
    unread = then.entries_added - at.added
    if unread <= 0:
        return None
    return Finding(
        stream,
        certain=True,
        text=f"stream {stream!r} was removed (DEL, RENAME) with {unread} entries that had not been read: it had "
        f"been read up to {at.id}, and its last id was {then.last_id}",
    )


def is_continued(at: Position, look: Look) -> bool:
    """Return whether a stream that came back is the one that was read up to ``at``.

    A new stream of that name ends before ``at``, or has more live entries after ``at`` than were added since.
    """
    return not was_set_back(at, look.state) and look.total <= look.state.entries_added - at.added


def remembered(
    before: Mapping[str, Position], gone: Mapping[str, Position], there: Mapping[str, object]
) -> dict[str, Position]:
    """Return the removed streams to remember: those of ``before`` that are not ``there`` again, and ``gone``.

    >>> here = Position(BEGINNING.id, 1)
    >>> list(remembered({"a": here, "b": here}, {"c": here}, {"b": None}))
    ['a', 'c']
    """
    kept = {
        stream: at for stream, at in before.items() if stream not in there and stream not in gone
    }
    kept |= {stream: at for stream, at in gone.items() if at != BEGINNING}
    return dict(list(kept.items())[-MOST:])
