"""Why is it stuck? The answer for all groups of a stream, for one group, or for one entry.

look ──▶ observations ──▶ explained ──▶ one explanation for each group
entry ─▶ what one entry waits for
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from headwater.groups.consumers import ConsumerState
from headwater.groups.missing_stream import StreamMissing
from headwater.groups.operation import Operation, accepted
from headwater.groups.pending import GroupInfo, PendingDelivery, PendingState, each_group
from headwater.model import StreamID
from headwater.operations.causes import Cause, causes, delayed, held
from headwater.operations.observation import Observation, observe
from headwater.operations.refusals import ServerRefusal, refusals
from headwater.operations.times import length_of_time


class Explanation(NamedTuple):
    """Why one group does not make progress; ``causes`` is empty if it does."""

    stream: str
    group: str
    pending: int
    unread: int | None
    """How many entries the group has not read; None if the server does not know."""
    causes: Sequence[Cause]


class EntryState(StrEnum):
    """Where an entry is on its way through a group."""

    UNREAD = "unread"
    PENDING = "pending"
    SETTLED = "settled"
    """The group has read it, and it is not pending: acknowledged, or made a dead letter."""
    GONE = "gone"
    """The stream does not have it, and it is not pending."""


class EntryExplanation(NamedTuple):
    """What one entry waits for in one group."""

    stream: str
    group: str
    entry: str
    state: EntryState
    statement: str
    causes: Sequence[Cause]


def look(
    stream: str, group: str | None = None, refused: Sequence[ServerRefusal] | None = None
) -> Operation[list[Observation]]:
    """Observe the groups of ``stream``, or only ``group``. Raises `HeadwaterError` if one does not exist.

    ``refused`` is why the server refuses commands, if the caller has asked already.
    """
    known = (yield from refusals(stream)) if refused is None else refused
    return (yield from each_group(stream, group, lambda one: observe(one, known)))


def look_if_there(stream: str, refused: Sequence[ServerRefusal]) -> Operation[list[Observation]]:
    """Observe the groups of a stream; none if it was deleted meanwhile."""
    try:
        return (yield from look(stream, None, refused))
    except StreamMissing:
        return []


def explained(now: Sequence[Observation], before: Sequence[Observation] = ()) -> list[Explanation]:
    """Return an explanation for each observation. ``before``: observations some time earlier, if any."""
    earlier = {(one.stream, one.group.group): one for one in before}
    return [
        Explanation(
            stream=one.stream,
            group=one.group.group,
            pending=one.group.pending,
            unread=one.group.unread,
            causes=causes(one, earlier.get((one.stream, one.group.group))),
        )
        for one in now
    ]


def entry(
    stream: str, entry_id: str, group: str | None = None
) -> Operation[list[EntryExplanation]]:
    """Explain what entry ``entry_id`` waits for in each group, or only in ``group``.

    Raises `HeadwaterError` if the stream or the group does not exist.
    """
    refused = yield from refusals(stream)
    return (yield from each_group(stream, group, lambda one: _entry(one, entry_id, refused)))


def _entry(
    of: GroupInfo, entry_id: str, refused: Sequence[ServerRefusal]
) -> Operation[EntryExplanation]:
    seen = yield from observe(of, refused, only=entry_id)
    if seen.group.entries:
        row = seen.group.entries[0]
        state, statement = EntryState.PENDING, _pending(row, seen)
        found = [one for one in causes(seen) if not one.entries or row.id in one.entries]
        if row.state is PendingState.PARKED and not any(row.id in one.entries for one in found):
            found.append(delayed(row))
        waits = [one for one in seen.held if row.id in one.waiting]
        found += [held(one) for one in waits if not any(row.id in one.entries for one in found)]
        return EntryExplanation(of.stream, of.name, entry_id, state, statement, found)
    replies = yield [["XRANGE", of.stream, entry_id, entry_id]]
    there = bool(accepted(replies[0]))
    state, statement = _not_pending(of.about, entry_id, there=there)
    found = causes(seen) if state is EntryState.UNREAD else []
    return EntryExplanation(of.stream, of.name, entry_id, state, statement, found)


def _pending(row: PendingDelivery, seen: Observation) -> str:
    times = "1 delivery" if row.deliveries == 1 else f"{row.deliveries} deliveries"
    if row.state is PendingState.PARKED:
        return f"it waits for its retry, after {times}"
    if not row.owner:
        return f"it was handed back and can be claimed, after {times}"
    owner = next((one for one in seen.consumers if one.name == row.owner), None)
    idle = f"idle for {length_of_time(row.idle_ms or 0)}"
    doing = "silent" if owner is None or owner.state != ConsumerState.ACTIVE else "active"
    return f"consumer {row.owner} ({doing}) owns it, {idle}, after {times}"


def _not_pending(
    about: Mapping[bytes, object], entry_id: str, *, there: bool
) -> tuple[EntryState, str]:
    """Return the state of an entry that is not pending, given the group's row of XINFO GROUPS."""
    last = about[b"last-delivered-id"]
    assert isinstance(last, bytes)
    read = StreamID.parse(entry_id) <= StreamID.parse(last)
    if not there:
        how = "after the group had read it" if read else "before the group read it"
        return (
            EntryState.GONE,
            f"the stream does not have it: it was deleted or trimmed {how}, or never added",
        )
    if read:
        return EntryState.SETTLED, "the group has read it, and it is acknowledged or a dead letter"
    return EntryState.UNREAD, f"the group has read up to {last.decode()} and not got to it yet"
