"""Detects entries that were removed before they were read, and decides whether that is data loss.

A stream counts all entries that were ever added to it. Of those added after a position, all that no longer
exist were removed before they were read. The counters show whether that is loss:

    max-deleted-entry-id <= from      no XDEL in this range: trimmed (XTRIM, MAXLEN, ACKED)   loss
    entries-added < added_from        the key was deleted and created again, or XSETID        loss
    last-generated-id < from          likewise, and reading starts at the stream's beginning  loss
    no such key                       deleted                                                 loss
    max-deleted-entry-id > from       XDEL, trimming, or both                                 uncertain

A stream that was deleted and created again, or set back, is not noticed if its counters fit: the same number of
entries added up to the position, and a last id after the position. So a running query also remembers the state
that the stream reported at the last look (`LastSeen`). The number of added entries, the last id, the greatest
deleted id and the first entry's id never decrease.

Loss raises an error or, with ``failOnDataLoss=false``, logs a warning with the number of entries. An uncertain
case also raises an error or, with ``ignoreDeletes=true`` or ``failOnDataLoss=false``, logs a warning.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from headwater.common.model import MAX_ID, MIN_ID, StreamID
from headwater.errors import DataLoss
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.positions import BEGINNING, Position, StreamState

_log = logging.getLogger("headwater.spark")


class Finding(NamedTuple):
    """Entries of ``stream`` that should be read are missing. ``certain`` is true if that is surely data loss."""

    stream: str
    certain: bool
    text: str


def was_set_back(position: Position, state: StreamState | None) -> bool:
    """Return whether the stream ends before ``position``. A missing key counts as an empty stream."""
    return position != BEGINNING if state is None else state.last_id < position.id


class LastSeen:
    """Remembers the state that each stream reported at the last look of this run."""

    def __init__(self) -> None:
        self._states: dict[str, StreamState] = {}

    def forget(self, stream: str) -> StreamState | None:
        """Forget the state that the stream reported last, and return it; None if no state was stored."""
        return self._states.pop(stream, None)

    def compare(self, stream: str, state: StreamState | None) -> str | None:
        """Return the reason why ``state`` cannot follow the stream's last one; None if it can.

        Stores ``state`` for the next call.
        """
        then = self._states.pop(stream, None)
        if state is not None:
            self._states[stream] = state
        if then is None:
            return None
        if state is None:
            gone = then.entries_added or then.last_id != MIN_ID
            return f"the key is gone; it had counted {then.entries_added} added" if gone else None
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
    """Return the finding for a stream for which `was_set_back` holds."""
    if state is None:
        now = "the key is gone"
    else:
        now = f"its last id is {state.last_id} and it counts {state.entries_added} added"
    return Finding(
        stream,
        certain=True,
        text=f"stream {stream!r} was deleted, recreated or set back: it had been read up to "
        f"{position.id} ({position.added} entries added), now {now}. Entries that were added in "
        "between and not read are lost",
    )


def judge(
    stream: str, position: Position, state: StreamState, live: int, *, changed: str | None = None
) -> Finding | None:
    """Return the finding if entries are missing after ``position``; else None. ``live`` entries follow it.

    ``changed`` is the result of `LastSeen.compare` for the stream.
    """
    expected = state.entries_added - position.added
    if expected < live or changed is not None:
        why = changed or (
            f"{live} entries follow {position.id}, but {expected} were added after it "
            f"({position.added} up to it, {state.entries_added} now)"
        )
        return Finding(
            stream,
            certain=True,
            text=f"stream {stream!r} was recreated or set back (DEL, XSETID): {why}. Entries that were "
            f"added in between and not read are lost; of those there now, the {live} after "
            f"{position.id} are read and the {state.length - live} before it are not",
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
    """Return the finding if entries in (start, end] were removed after they were counted; else None."""
    if expected == found:
        return None
    if state is None or state.last_id < end or found > expected:
        now = "the key is gone" if state is None else f"its last id is {state.last_id}"
        return Finding(
            stream,
            certain=True,
            text=f"stream {stream!r} was deleted, recreated or set back while it was read: "
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
    """Raise `DataLoss`, or log a warning if the options accept the finding."""
    if not options.fail_on_data_loss or (options.ignore_deletes and not finding.certain):
        _log.warning("%s.", finding.text)
        return
    if finding.certain:
        remedy = (
            "Keep more in the stream (MAXLEN, MINID) or read it more often; with failOnDataLoss=false "
            "the query continues with a warning."
        )
    else:
        remedy = (
            "If entries or streams are deleted on purpose, set ignoreDeletes=true to continue with a "
            "warning."
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
    certain = max_deleted_id <= start
    how = "trimmed (MAXLEN, MINID, XTRIM)" if certain else "deleted or trimmed (XDEL, XTRIM)"
    doubt = "" if certain else ". XDEL reached this range, so which of the two is unknown"
    upto = f" up to {end}" if end != MAX_ID else ""
    return Finding(
        stream,
        certain=certain,
        text=f"stream {stream!r}: {missing} of {expected} entries after {start}{upto} were {how} "
        f"before they were read; {expected - missing} are left{doubt}",
    )
