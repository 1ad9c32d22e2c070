"""Whether entries were removed before they were read, and what to make of it.

A stream counts what was ever added to it. What was added after a position, less what is still there
after it, was removed before it was read. Whether that is loss is judged by what the stream says:

    max-deleted-entry-id <= from      no XDEL came here: trimmed (XTRIM, MAXLEN, ACKED)    loss
    entries-added < added_from        the key was deleted and made anew, or XSETID         loss
    last-generated-id < from          likewise, and reading must start at its beginning    loss
    no such key                       deleted                                              loss
    max-deleted-entry-id > from       XDEL, trimming, or both: cannot be told              untold

Loss is an error, or a counted warning with ``failOnDataLoss=false``; what cannot be told is an
error too, or a counted warning with ``ignoreDeletes=true`` (or with ``failOnDataLoss=false``).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from headwater.errors import DataLoss
from headwater.model import MAX_ID, StreamID
from headwater.spark.log_mode.offsets import Position
from headwater.spark.options import SourceOptions

_log = logging.getLogger("headwater.spark")


class StreamState(NamedTuple):
    """What XINFO STREAM says of a stream. ``first_id`` is that of the first entry, 0-0 if none."""

    length: int
    last_id: StreamID
    max_deleted_id: StreamID
    entries_added: int
    first_id: StreamID

    @property
    def removed(self) -> int:
        """How many entries were ever removed from it, by whatever means."""
        return self.entries_added - self.length


class Finding(NamedTuple):
    """Entries of ``stream`` are gone that were to be read. ``told``: it is certainly data loss."""

    stream: str
    told: bool
    text: str


def was_set_back(position: Position, state: StreamState | None) -> bool:
    """Whether the stream is another one than was read: gone, or its last id before ours."""
    last = state.last_id if state else StreamID(0, 0)
    return last < position.id


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


def judge(stream: str, position: Position, state: StreamState, live: int) -> Finding | None:
    """What is missing after ``position``, where ``live`` entries are left; None if nothing is."""
    expected = state.entries_added - position.added
    if expected == live:
        return None
    if expected < live:
        return Finding(
            stream,
            told=True,
            text=f"stream {stream!r} was made anew or set back (DEL, XSETID): {live} entries follow "
            f"{position.id}, where {expected} were added ({position.added} before, "
            f"{state.entries_added} now)",
        )
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
