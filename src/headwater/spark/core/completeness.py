"""Whether entries were removed before they were read, and what to make of it.

A stream counts what was ever added to it. What was added after a position, less what is still there
after it, was removed before it was read. Whether that is loss is judged by what the stream says:

    max-deleted-entry-id <= from      no XDEL came here: trimmed (XTRIM, MAXLEN, ACKED)    loss
    entries-added < added_from        the key was deleted and made anew, or XSETID         loss
    last-generated-id < from          likewise, and reading must start at its beginning    loss
    no such key                       deleted                                              loss
    max-deleted-entry-id > from       XDEL, trimming, or both: cannot be told              untold

A stream that was deleted and made anew, or set back, cannot hide it but by counters that fit: as
many entries added up to our place, and a last id behind it. So a running query also remembers what
the stream said at the last look (`LastSeen`): its counters, its last id, its greatest deleted id and
its first entry only ever rise.

Loss is an error, or a counted warning with ``failOnDataLoss=false``; what cannot be told is an
error too, or a counted warning with ``ignoreDeletes=true`` (or with ``failOnDataLoss=false``).
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from headwater.errors import DataLoss
from headwater.model import MAX_ID, MIN_ID, StreamID
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.positions import BEGINNING, Position
from headwater.spark.core.state import StreamState

_log = logging.getLogger("headwater.spark")


class Finding(NamedTuple):
    """Entries of ``stream`` are gone that were to be read. ``told``: it is certainly data loss."""

    stream: str
    told: bool
    text: str


def was_set_back(position: Position, state: StreamState | None) -> bool:
    """Whether the stream is another one than was read: gone, or its last id before ours."""
    return position != BEGINNING if state is None else state.last_id < position.id


class LastSeen:
    """What each stream said at the last look of this run."""

    def __init__(self) -> None:
        self._states: dict[str, StreamState] = {}

    def compare(self, stream: str, state: StreamState | None) -> str | None:
        """In which way ``state`` cannot be of the stream that was seen last; None if it can be.

        It is what is remembered from now on.
        """
        then = self._states.pop(stream, None)
        if state is not None:
            self._states[stream] = state
        if then is None:
            return None
        if state is None:
            gone = then.entries_added or then.last_id != MIN_ID
            return f"the key is gone, which counted {then.entries_added} added" if gone else None
        first_then = then.first_id if then.length else then.last_id
        pairs: list[tuple[str, Any, Any]] = [
            ("entries-added", then.entries_added, state.entries_added),
            ("last-generated-id", then.last_id, state.last_id),
            ("max-deleted-entry-id", then.max_deleted_id, state.max_deleted_id),
            ("the number of removed entries", then.removed, state.removed),
            ("the first entry", first_then, state.first_id if state.length else first_then),
        ]
        for name, before, now in pairs:
            if now < before:
                return f"{name} went back from {before} to {now}"
        return None


def set_back(stream: str, position: Position, state: StreamState | None) -> Finding:
    """The finding for a stream for which `was_set_back` holds."""
    if state is None:
        now = "the key is gone"
    else:
        now = f"its last id is {state.last_id} and it counts {state.entries_added} added"
    return Finding(
        stream,
        told=True,
        text=f"stream {stream!r} was deleted, made anew or set back: reading had come to "
        f"{position.id} ({position.added} entries added), now {now}. What was added in between "
        "and not read is lost",
    )


def judge(
    stream: str, position: Position, state: StreamState, live: int, *, changed: str | None = None
) -> Finding | None:
    """What is missing after ``position``, where ``live`` entries are left; None if nothing is.

    ``changed`` is what `LastSeen` said of the stream.
    """
    expected = state.entries_added - position.added
    if expected < live or changed is not None:
        why = changed or (
            f"{live} entries follow {position.id}, where {expected} were added ({position.added} "
            f"before, {state.entries_added} now)"
        )
        return Finding(
            stream,
            told=True,
            text=f"stream {stream!r} was made anew or set back (DEL, XSETID): {why}. What was added "
            f"in between and not read is lost; of what is there now, {live} entries after "
            f"{position.id} are read and {state.length - live} before it are not",
        )
    if expected == live:
        return None
    return _removed(
        stream,
        missing=expected - live,
        expected=expected,
        start=position.id,
        end=state.last_id,
        max_deleted_id=state.max_deleted_id,
    )


def judge_range(
    stream: str,
    start: StreamID,
    end: StreamID,
    *,
    expected: int,
    found: int,
    state: StreamState | None,
) -> Finding | None:
    """The same for a range (``start`` excluded) that was counted before it was read."""
    if expected == found:
        return None
    if state is None or state.last_id < end or found > expected:
        now = "the key is gone" if state is None else f"its last id is {state.last_id}"
        return Finding(
            stream,
            told=True,
            text=f"stream {stream!r} was deleted, made anew or set back while it was read: "
            f"{found} of {expected} entries after {start} up to {end} were found; {now}",
        )
    return _removed(
        stream,
        missing=expected - found,
        expected=expected,
        start=start,
        end=end,
        max_deleted_id=state.max_deleted_id,
    )


def report(finding: Finding, options: SourceOptions) -> None:
    """Raise `DataLoss`, or log a warning where the options accept what was found."""
    if not options.fail_on_data_loss or (options.ignore_deletes and not finding.told):
        _log.warning("%s.", finding.text)
        return
    if finding.told:
        remedy = (
            "Keep more in the stream (MAXLEN, MINID) or read it more often; failOnDataLoss=false "
            "goes on with a warning."
        )
    else:
        remedy = (
            "XDEL reached this range, so deletion and trimming cannot be told apart. If entries "
            "are deleted on purpose, ignoreDeletes=true goes on with a warning."
        )
    raise DataLoss(f"{finding.text}. {remedy}")


def _removed(
    stream: str,
    *,
    missing: int,
    expected: int,
    start: StreamID,
    end: StreamID,
    max_deleted_id: StreamID,
) -> Finding:
    told = max_deleted_id <= start
    how = "trimmed (MAXLEN, MINID, XTRIM)" if told else "deleted or trimmed (XDEL, XTRIM)"
    upto = f" up to {end}" if end != MAX_ID else ""
    return Finding(
        stream,
        told=told,
        text=f"stream {stream!r}: {missing} of {expected} entries after {start}{upto} were {how} "
        f"before they were read; {expected - missing} are left",
    )
