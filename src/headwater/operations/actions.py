"""What an operator does to pending entries: hand back, claim, acknowledge, make a dead letter.

Rule 1. An action is done in the name of the entry's owner at the time of the preview, owner-checked as a worker's
        own settlement: an entry that a worker has claimed or settled since then is left alone.
Rule 2. `select` shows what an action would touch; it changes nothing. The actions take its rows.
Rule 3. Each action is recorded in the stream ``{stream}:hw:actions``: who, what, which entries, how many of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from headwater.groups.content import ContentPages
from headwater.groups.dead_letters import bury as dead_letter
from headwater.groups.member import CLAIM_AFTER_FIELD, Member
from headwater.groups.operation import Operation, Refused, accepted
from headwater.groups.pending import GroupInfo, PendingDelivery, PendingFilter, deliveries, groups
from headwater.groups.poison import forget
from headwater.groups.settling import How, Settlement, settle
from headwater.messages import (
    PARKED_CONSUMER,
    actions_key,
    dead_letter_stream,
    group_settings_key,
)
from headwater.operations.observation import SILENT_MS

PAGE = 500
"""How many entries are read, or acted on, in one step."""

OPERATOR = "hw.operator"
"""The consumer that settles entries that nobody owned, on Headwater."""

RECORDS = 1_000
"""About how many actions the record of a stream keeps."""


class Action(StrEnum):
    """What is done to pending entries."""

    RELEASE = "release"
    """Handed back: the next consumer that claims gets it. Delayed entries are due at once."""
    CLAIM = "claim"
    """Given to another consumer, as XCLAIM does."""
    ACKNOWLEDGE = "acknowledge"
    """Settled without being handled."""
    BURY = "bury"
    """Made a dead letter, which can be replayed."""


class Selection(NamedTuple):
    """Which pending entries an action is for: those that fit everything given."""

    ids: Sequence[str] = ()
    """Only these; all if empty."""
    consumer: str | None = None
    """Only those that this consumer owns."""
    idle_ms: int = 0
    """Only those that were idle for this time. Those that nobody owns are, too."""
    deliveries: int = 0
    """Only those that were delivered at least so often."""


class Done(NamedTuple):
    """The result of an action on one entry."""

    id: str
    done: bool
    reason: str = ""
    """Why it was not done."""


def select_in(stream: str, group: str, which: Selection) -> Operation[list[PendingDelivery]]:
    """Return the pending entries that fit ``which``. Raises `HeadwaterError` if there is no such group."""
    (of,) = yield from groups(stream, group)
    replies = yield [["HGET", group_settings_key(stream, group), CLAIM_AFTER_FIELD]]
    announced = None if isinstance(replies[0], Refused) or replies[0] is None else int(replies[0])
    return (yield from select(of, which, claim_after_ms=announced))


def select(
    of: GroupInfo, which: Selection, *, claim_after_ms: int | None
) -> Operation[list[PendingDelivery]]:
    """Return the pending entries of a group that fit ``which``, in id order."""
    found: list[PendingDelivery] = []
    if which.ids:
        for one in which.ids:
            found += yield from deliveries(
                of,
                PendingFilter(1, one, one, which.consumer, which.idle_ms),
                claim_after_ms=claim_after_ms,
            )
    else:
        start = "-"
        while True:
            filtered = PendingFilter(PAGE, start, "+", which.consumer, which.idle_ms)
            page = yield from deliveries(of, filtered, claim_after_ms=claim_after_ms)
            found += page
            if len(page) < PAGE:
                break
            start = f"({page[-1].id}"
    return [one for one in found if one.deliveries >= which.deliveries]


def release(of: GroupInfo, rows: Sequence[PendingDelivery]) -> Operation[list[Done]]:
    """Hand entries back. Delivery counts stay as they are."""
    return (yield from _settled(of, rows, Action.RELEASE, How.FAIL))


def acknowledge(of: GroupInfo, rows: Sequence[PendingDelivery]) -> Operation[list[Done]]:
    """Acknowledge entries without handling them."""
    return (yield from _settled(of, rows, Action.ACKNOWLEDGE, How.ACK))


def claim(
    of: GroupInfo, rows: Sequence[PendingDelivery], consumer: str, *, idle_ms: int
) -> Operation[list[Done]]:
    """Give entries to ``consumer``, except those that have been idle for less than ``idle_ms`` by now.

    A delayed entry cannot be claimed before it is due. Delivery counts stay as they are.
    """
    done: list[Done] = []
    for part in _pages(rows):
        ids = [one.id for one in part]
        replies = yield [["XCLAIM", of.stream, of.name, consumer, idle_ms, *ids, "JUSTID"]]
        taken = {one.decode() for one in accepted(replies[0])}
        done += [
            Done(
                one,
                one in taken,
                "" if one in taken else "it is delayed, or was renewed or settled meanwhile",
            )
            for one in ids
        ]
    yield from _record(of, Action.CLAIM, done, to=consumer)
    return done


def bury(of: GroupInfo, rows: Sequence[PendingDelivery], *, error: str) -> Operation[list[Done]]:
    """Make entries dead letters, with ``error`` as the reason, each in one step with its acknowledgement."""
    destination = dead_letter_stream(of.stream)
    done: list[Done] = []
    pages = ContentPages()
    for owner, part in _by_owner(of, rows):
        member = _member(of, owner)
        taken = frozenset((yield from _take(of, part)))
        done += [Done(row.id, False, _OTHERS) for row in part if row.id not in taken]
        for some in pages.of([row for row in part if row.id in taken]):
            done += yield from _bury(of, member, some, destination, error, pages)
    yield from _record(of, Action.BURY, done, to=destination)
    return done


def _bury(
    of: GroupInfo,
    member: Member,
    rows: Sequence[PendingDelivery],
    destination: str,
    error: str,
    pages: ContentPages,
) -> Operation[list[Done]]:
    """Make entries of one owner dead letters."""
    replies = yield [["XRANGE", of.stream, row.id, row.id] for row in rows]
    entries = {row.id: accepted(reply) for row, reply in zip(rows, replies, strict=True)}
    letters = [
        dead_letter(
            member,
            destination,
            id=row.id.encode(),
            fields=entries[row.id][0][1],
            deliveries=row.deliveries,
            error=error,
            at_ms=of.now_ms,
        )
        for row in rows
        if entries[row.id]
    ]
    outcomes = (yield from settle(member, letters)) if letters else []
    buried = {one.id.decode() for one, how in zip(letters, outcomes, strict=True) if how.done}
    if buried:
        yield from forget(member, [one.encode() for one in buried])
    pages.read([found[0][1] for found in entries.values() if found])
    reasons = {one: _OTHERS if found else _DELETED for one, found in entries.items()}
    return [Done(one, one in buried, "" if one in buried else why) for one, why in reasons.items()]


_OTHERS = "a consumer has claimed or settled it meanwhile"
_DELETED = "the stream does not have it any more: acknowledge it"


def _settled(
    of: GroupInfo, rows: Sequence[PendingDelivery], action: Action, how: How
) -> Operation[list[Done]]:
    """Settle entries in the names of their owners."""
    done: dict[str, Done] = {}
    for owner, part in _by_owner(of, rows):
        member = _member(of, owner)
        taken = yield from _take(of, part)
        steps = [Settlement(one.encode(), how) for one in taken]
        outcomes = (yield from settle(member, steps)) if steps else []
        pairs = zip(taken, outcomes, strict=True)
        fine = {one for one, outcome in pairs if outcome.done or outcome.gone}
        for row in part:
            done[row.id] = Done(row.id, row.id in fine, "" if row.id in fine else _OTHERS)
    found = [done[one.id] for one in rows]
    yield from _record(of, action, found)
    return found


def _by_owner(
    of: GroupInfo, rows: Sequence[PendingDelivery]
) -> Iterator[tuple[str, list[PendingDelivery]]]:
    """Yield pages of entries of the same owner: of what nobody owns, the consumer in whose name it is settled."""
    nobody = OPERATOR if of.able.verbs else PARKED_CONSUMER
    owned: dict[str, list[PendingDelivery]] = {}
    for one in rows:
        owned.setdefault(one.owner, []).append(one)
    for owner, its in owned.items():
        for part in _pages(its):
            yield owner or nobody, part


def _take(of: GroupInfo, part: Sequence[PendingDelivery]) -> Operation[list[str]]:
    """Return the ids of those entries that can be settled in their owner's name.

    On Headwater nobody owns delayed and released entries: they are claimed for `OPERATOR` first. Delayed ones are
    handed back before that, because they cannot be claimed. An entry that a worker has claimed meanwhile is not
    taken: it has not been idle for long enough.
    """
    ids = [one.id for one in part]
    if part[0].owner or not of.able.verbs:
        return ids
    replies = yield [["XPENDING", of.stream, of.name, one, one, 1] for one in ids]
    rows = [accepted(reply) for reply in replies]
    free = [one for one, row in zip(ids, rows, strict=True) if row and not row[0][1]]
    if not free:
        return []
    replies = yield [
        ["XNACK", of.stream, of.name, "FAIL", "IDS", len(free), *free],
        ["XCLAIM", of.stream, of.name, OPERATOR, SILENT_MS, *free, "JUSTID"],
    ]
    accepted(replies[0])
    return [one.decode() for one in accepted(replies[1])]


def _member(of: GroupInfo, owner: str) -> Member:
    """Return the member in whose name an action is done."""
    return Member(of.stream, of.name, owner, SILENT_MS, of.able)


def _record(
    of: GroupInfo, action: Action, done: Sequence[Done], *, to: str = ""
) -> Operation[None]:
    """Record who did what. A server that refuses this does not undo the action."""
    replies = yield [["ACL", "WHOAMI"]]
    # Nil for an embedded store, which has no users.
    who = replies[0] if isinstance(replies[0], bytes) else b"default"
    ids = [one.id for one in done if one.done]
    yield [
        [
            *("XADD", actions_key(of.stream), "MAXLEN", "~", RECORDS, "*"),
            *("user", who, "action", action, "group", of.name, "to", to),
            *("entries", len(ids), "refused", len(done) - len(ids), "first", ids[0] if ids else ""),
        ]
    ]


def _pages(rows: Sequence[PendingDelivery]) -> Iterator[list[PendingDelivery]]:
    rest = iter(rows)
    while page := list(islice(rest, PAGE)):
        yield page
