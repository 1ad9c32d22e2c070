"""Explains why the groups of a stream, one group, or one entry are stuck.

look ──▶ observations ──▶ explained ──▶ one explanation for each group
entry ─▶ one explanation of the entry for each group
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from headwater.common.model import StreamID
from headwater.common.names import bytes_of, text_of
from headwater.groups.membership.consumers import UNSEEN_MS
from headwater.groups.membership.member import SEEN_FIELD
from headwater.groups.protocol.missing_stream import StreamMissing
from headwater.groups.protocol.operation import Operation, Refused, accepted, mapping, server_ms
from headwater.groups.reports.pending import GroupInfo, PendingDelivery, PendingState, each_group
from headwater.messages.keys import group_backup_key, group_settings_key
from headwater.operations.causes import Cause, causes, delayed, held, unhealthy, vanished
from headwater.operations.observation import Observation, observe
from headwater.operations.refusals import TAKES_WRITES, Refusals, refusals
from headwater.operations.times import length_of_time


class GroupHealth(StrEnum):
    """The health of a group: whether it makes progress."""

    HEALTHY = "healthy"
    UNHEALTHY = "not healthy"
    UNKNOWN = "unknown"
    """No problem was found, but the server does not even tell this user whether it accepts writes."""


class Explanation(NamedTuple):
    """The health of one group, with the causes that keep it stuck."""

    stream: str
    group: str
    pending: int
    unread: int | None
    """Number of entries that the group has not read; None if the server does not know."""
    health: GroupHealth
    causes: Sequence[Cause]
    """The causes that keep the group stuck, and those of entries that wait as declared."""
    unknown: Sequence[str] = ()
    """The facts that the server does not report to this user."""


class EntryState(StrEnum):
    """The state of an entry in a group."""

    UNREAD = "unread"
    PENDING = "pending"
    SETTLED = "settled"
    """The entry is not after the group's position, and not pending: it was settled, or was skipped by a reset."""
    GONE = "gone"
    """The entry is not in the stream, and not pending."""


class EntryExplanation(NamedTuple):
    """The state of one entry in one group, with the causes of its wait."""

    stream: str
    group: str
    entry: str
    state: EntryState
    statement: str
    causes: Sequence[Cause]


def look(
    stream: str,
    group: str | None = None,
    server: Refusals | None = None,
) -> Operation[list[Observation]]:
    """Observe the groups of ``stream``, or only ``group``. Raises `HeadwaterError` if one does not exist.

    ``server`` is what the server refuses, None to ask it.
    """
    known = (yield from refusals(stream)) if server is None else server
    return (yield from each_group(stream, group, lambda one: observe(one, known)))


def look_if_there(stream: str, server: Refusals) -> Operation[list[Observation]]:
    """Observe the groups of a stream. Return an empty list if the stream has been deleted."""
    try:
        return (yield from look(stream, None, server))
    except StreamMissing:
        return []


def explained(now: Sequence[Observation], before: Sequence[Observation] = ()) -> list[Explanation]:
    """Return an explanation for each observation, and for each group that has ceased to exist since the earlier
    observations ``before``."""
    earlier = {(one.stream, one.group.group): one for one in before}
    found = []
    for one in now:
        why = causes(one, earlier.pop((one.stream, one.group.group), None))
        health = GroupHealth.UNKNOWN if TAKES_WRITES in one.unknown else GroupHealth.HEALTHY
        health = GroupHealth.UNHEALTHY if unhealthy(why) else health
        counts = one.group.pending, one.group.unread
        found.append(Explanation(one.stream, one.group.group, *counts, health, why, one.unknown))
    for stream, group in earlier:
        found.append(_gone(stream, group, "it was there a moment ago, and is not any more"))
    return found


def _gone(stream: str, group: str, statement: str) -> Explanation:
    return Explanation(
        stream, group, 0, None, GroupHealth.UNHEALTHY, [vanished(stream, group, statement)]
    )


def gone_groups(
    known: Collection[tuple[str, str]], stream: str | None = None
) -> Operation[list[Explanation]]:
    """Return an explanation for each group, of all streams or of ``stream``, that does not exist although one of
    its workers was seen within a day. Such a group is found by its settings, which outlive it. The list is empty
    if the server refuses SCAN. ``known`` are pairs of stream and group that need not be examined.
    """
    keys: set[bytes] = set()
    cursor: Any = 0
    while True:
        match = group_settings_key("*", "*").replace("{*}", "*")
        replies = yield [["SCAN", cursor, "MATCH", match, "COUNT", 1_000, "TYPE", "hash"]]
        if isinstance(replies[0], Refused):
            return []
        cursor, page = replies[0]
        keys.update(page)
        if int(cursor) == 0:
            break
    found = []
    for key in sorted(keys):
        head, _mark, group = text_of(key).partition(":hw:group:")
        # The key of the stream "orders" is also that of the stream "{orders}".
        names = [head.removeprefix("{").removesuffix("}")] if head.startswith("{") else []
        names += [head]
        names = [one for one in names if bytes_of(group_settings_key(one, group)) == key]
        if any((one, group) in known for one in names) or stream not in (None, *names):
            continue
        replies = yield [
            ["TIME"],
            ["HGET", key, SEEN_FIELD],
            ["HGET", group_backup_key(names[0], group), "at"],
            *(["XINFO", "GROUPS", one] for one in names),
        ]
        seen = [int(one) for one in replies[1:3] if isinstance(one, bytes)]
        denied = any(isinstance(one, Refused) and one.code == "NOPERM" for one in replies[3:])
        if denied or not seen:
            continue
        ago = max(0, server_ms(replies[0]) - max(seen))
        rows = [row for one in replies[3:] if not isinstance(one, Refused) for row in one]
        if ago < UNSEEN_MS and not any(mapping(row)[b"name"] == bytes_of(group) for row in rows):
            said = f"a worker was seen {length_of_time(ago)} ago, but the group does not exist"
            found.append(_gone(stream or names[0], group, said))
    return found


def entry(
    stream: str, entry_id: str, group: str | None = None
) -> Operation[list[EntryExplanation]]:
    """Explain why entry ``entry_id`` waits in each group, or only in ``group``.

    Raises `HeadwaterError` if the stream or the group does not exist.
    """
    refused = yield from refusals(stream)
    return (yield from each_group(stream, group, lambda one: _entry(one, entry_id, refused)))


def _entry(of: GroupInfo, entry_id: str, refused: Refusals) -> Operation[EntryExplanation]:
    seen = yield from observe(of, refused, only=entry_id)
    if seen.group.entries:
        row = seen.group.entries[0]
        state, statement = EntryState.PENDING, _pending(row)
        found = [one for one in causes(seen) if not one.entries or row.id in one.entries]
        if row.state is PendingState.PARKED and not any(row.id in one.entries for one in found):
            found.append(delayed(row))
        waits = [one for one in seen.held if row.id in one.waiting]
        found += [
            held(one, seen) for one in waits if not any(row.id in one.entries for one in found)
        ]
        return EntryExplanation(of.stream, of.name, entry_id, state, statement, found)
    replies = yield [["XRANGE", of.stream, entry_id, entry_id]]
    there = bool(accepted(replies[0]))
    state, statement = _not_pending(of.about, entry_id, there=there)
    found = causes(seen) if state is EntryState.UNREAD else []
    return EntryExplanation(of.stream, of.name, entry_id, state, statement, found)


def _pending(row: PendingDelivery) -> str:
    times = "1 delivery" if row.deliveries == 1 else f"{row.deliveries} deliveries"
    if row.state is PendingState.LIMITED:
        return f"it waits for the limit of its consumer, after {times}"
    if row.state is PendingState.PARKED:
        return f"it waits for its retry, after {times}"
    if not row.owner:
        return f"it was handed back and can be claimed, after {times}"
    idle = f"idle for {length_of_time(row.idle_ms or 0)}"
    if row.state is PendingState.CLAIMABLE:
        return f"consumer {row.owner} (silent) owns it, {idle}, after {times}: the next worker that reads can claim it"
    return f"consumer {row.owner} (active) owns it, {idle}, after {times}"


def _not_pending(
    about: Mapping[bytes, object], entry_id: str, *, there: bool
) -> tuple[EntryState, str]:
    """Return the state of an entry that is not pending, given the group's row of XINFO GROUPS."""
    last = about[b"last-delivered-id"]
    assert isinstance(last, bytes)
    read = StreamID.parse(entry_id) <= StreamID.parse(last)
    if not there:
        how = "after the group's position had passed it" if read else "before the group read it"
        return (
            EntryState.GONE,
            f"the stream does not have it: it was deleted or trimmed {how}, or never added",
        )
    if read:
        return (
            EntryState.SETTLED,
            "it is not after the group's position, and not pending: it was settled or skipped",
        )
    return EntryState.UNREAD, f"the group has read up to {last.decode()} and not got to it yet"
