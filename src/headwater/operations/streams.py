"""Lists the streams of a store, and measures the lag of their groups.

Rule. The server is asked about `TOGETHER` streams at a time, so that ten thousand streams take a second. Entries
      are transferred only if the user may not run scripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headwater.common.model import StreamID
from headwater.common.names import text_of
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.missing_stream import StreamMissing, of_stream
from headwater.groups.protocol.operation import (
    Command,
    Operation,
    Refused,
    accepted,
    batched,
    mapping,
    server_ms,
)
from headwater.groups.reports.pending import known_lag
from headwater.groups.settling.ticks import state_if_told
from headwater.messages.keys import RESERVED, delays_key

TOGETHER = 500
"""Maximum number of streams in one round trip."""


class StreamSummary(NamedTuple):
    """The counts of one stream, and its schedule."""

    stream: str
    entries: int
    groups: int
    pending: int
    """Number of pending entries of all groups."""
    unread: int | None
    """Number of entries that the slowest group has not read; None without groups, or if unknown."""
    schedule: str | None = None
    """The rule by which ticks are added to the stream (`App.every`, `App.cron`); None without a schedule."""
    last_tick_ms: int | None = None
    """Milliseconds since the last tick; None if unknown."""
    next_tick_ms: int | None = None
    """Milliseconds until the next tick is due; negative if it is late, None if unknown."""


class GroupLag(NamedTuple):
    """The lag of one group. Times are in milliseconds."""

    stream: str
    group: str
    consumers: int
    pending: int
    unread: int | None
    """Number of entries that the group has not read; None if the server does not know."""
    lag_ms: int | None
    """Age of the oldest unread entry, by its id; 0 if none is unread, None if the server does not report it."""
    oldest_pending_ms: int | None
    """Age of the oldest pending entry, by its id; None if none is pending, or the server does not report it."""
    delayed: int | None
    """Number of pending entries that wait for their retry; None if the server does not report it."""


def names(pattern: str = "*") -> Operation[list[str]]:
    """Return the names of the streams that match a glob pattern, sorted, without those that Headwater keeps for other
    streams, except dead-letter streams."""
    found: set[bytes] = set()
    cursor: Any = 0
    while True:
        replies = yield [["SCAN", cursor, "MATCH", pattern, "COUNT", 1_000, "TYPE", "stream"]]
        cursor, keys = accepted(replies[0])
        found.update(keys)
        if int(cursor) == 0:
            break
    texts = map(text_of, found)
    return sorted(text for text in texts if RESERVED not in text)


def summaries(streams: Sequence[str]) -> Operation[list[StreamSummary]]:
    """Return a summary of each of ``streams`` that exists."""
    found: list[StreamSummary] = []
    for part in batched(streams, TOGETHER):
        commands: list[Command] = []
        for one in part:
            commands += [["XLEN", one], ["XINFO", "GROUPS", one]]
        replies = yield commands
        for one, length, groups in zip(part, replies[::2], replies[1::2], strict=True):
            try:
                rows = [mapping(row) for row in (yield from of_stream(groups, one))]
            except StreamMissing:
                continue  # the stream has been deleted
            unread = [known_lag(row) for row in rows]
            summary = StreamSummary(
                one,
                accepted(length),
                len(rows),
                sum(row[b"pending"] for row in rows),
                max(map(int, filter(None, unread)), default=0)
                if unread and None not in unread
                else None,
            )
            for row in rows:
                summary = yield from _with_ticks(summary, text_of(row[b"name"]))
            found.append(summary)
    return found


def _with_ticks(summary: StreamSummary, group: str) -> Operation[StreamSummary]:
    """Return the summary with its schedule, if ``group`` is the group that handles ticks."""
    ticks = yield from state_if_told(summary.stream, group)
    if ticks is None:
        return summary
    return summary._replace(
        schedule=ticks.rule,
        last_tick_ms=None if ticks.ticked_ms is None else max(0, ticks.now_ms - ticks.ticked_ms),
        next_tick_ms=None if ticks.next_ms is None else ticks.next_ms - ticks.now_ms,
    )


def lags(streams: Sequence[str], group: str | None = None) -> Operation[list[GroupLag]]:
    """Return the lag of each group of ``streams``, or only of those named ``group``.

    Raises `HeadwaterError` if ``streams`` is a single stream that does not exist.
    """
    able = yield from probe()
    found: list[GroupLag] = []
    for part in batched(streams, TOGETHER):
        replies = yield [["TIME"], *(["XINFO", "GROUPS", one] for one in part)]
        now_ms = server_ms(replies[0])
        places: list[tuple[str, Mapping[bytes, Any]]] = []
        for one, groups in zip(part, replies[1:], strict=True):
            try:
                rows = [mapping(row) for row in (yield from of_stream(groups, one))]
            except StreamMissing:
                if len(streams) == 1:
                    raise
                continue  # the stream has been deleted
            places += [(one, row) for row in rows if group in (None, text_of(row[b"name"]))]
        for step in batched(places, TOGETHER):
            measured = _by_verbs(step) if able.verbs else _elsewhere(step, now_ms)
            found += yield from _lags(step, now_ms, (yield from measured))
    return found


class _Measured(NamedTuple):
    """The measurements of a group that XINFO GROUPS lacks."""

    unread: int | None
    lag_ms: int | None
    delayed: int | None


Places = Sequence[tuple[str, Mapping[bytes, Any]]]
"""Groups: for each, its stream and its row of XINFO GROUPS."""


def _lags(places: Places, now_ms: int, measured: Sequence[_Measured]) -> Operation[list[GroupLag]]:
    replies = yield [["XPENDING", stream, row[b"name"]] for stream, row in places]
    found = []
    for (stream, row), more, summary in zip(places, measured, replies, strict=True):
        oldest = None if isinstance(summary, Refused) or summary[1] is None else summary[1]
        found.append(
            GroupLag(
                stream=stream,
                group=text_of(row[b"name"]),
                consumers=int(row[b"consumers"]),
                pending=int(row[b"pending"]),
                unread=more.unread,
                lag_ms=more.lag_ms,
                oldest_pending_ms=None if oldest is None else _age(oldest, now_ms),
                delayed=more.delayed,
            )
        )
    return found


def _by_verbs(places: Places) -> Operation[list[_Measured]]:
    replies = yield [["XLAG", stream, row[b"name"]] for stream, row in places]
    found = []
    for reply in replies:
        if isinstance(
            reply, Refused
        ):  # the group was deleted in the meantime, or the user may not access it
            found.append(_Measured(None, None, None))
            continue
        about = mapping(next(iter(mapping(reply).values())))
        age = about[b"unread-age-ms"]
        found.append(_Measured(about[b"unread"], 0 if age is None else age, about[b"delayed"]))
    return found


_FIRST_AFTER = """
-- KEYS stream. ARGV id. Returns the id of the first entry after it.
local entry = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', 1)[1]
return entry and entry[1]
"""


def _elsewhere(places: Places, now_ms: int) -> Operation[list[_Measured]]:
    """Measure what Redis and Valkey do not count. A group whose lag is 0 has no unread entry."""
    behind = [(stream, row) for stream, row in places if row.get(b"lag") != 0]
    replies = yield [
        *(
            ["EVAL_RO", _FIRST_AFTER, 1, stream, row[b"last-delivered-id"]]
            for stream, row in behind
        ),
        *(["ZCARD", delays_key(stream, text_of(row[b"name"]))] for stream, row in places),
    ]
    firsts = replies[: len(behind)]
    if any(isinstance(one, Refused) and one.code == "NOPERM" for one in firsts):
        firsts = yield [
            ["XRANGE", stream, b"(" + row[b"last-delivered-id"], "+", "COUNT", 1]
            for stream, row in behind
        ]
        firsts = [one if isinstance(one, Refused) or not one else one[0][0] for one in firsts]
    ages = {
        (stream, row[b"name"]): None
        if isinstance(first, Refused)
        else _age(first, now_ms)
        if first
        else 0
        for (stream, row), first in zip(behind, firsts, strict=True)
    }
    found = []
    for (stream, row), delayed in zip(places, replies[len(behind) :], strict=True):
        lag_ms = ages.get((stream, row[b"name"]), 0)
        unknown = isinstance(delayed, Refused)
        found.append(_Measured(known_lag(row), lag_ms, None if unknown else int(delayed)))
    return found


def _age(entry_id: bytes, now_ms: int) -> int:
    return max(0, now_ms - StreamID.parse(entry_id).ms)
