"""Actions of an operator on pending entries: hand back, claim, acknowledge, make a dead letter.

Rule 1. An entry is settled in the name of its owner in the preview, and left alone if a worker has claimed or
        settled it since then. `claim` checks only the idle time.
Rule 2. `select` returns the entries that an action would touch, and changes nothing. The actions take these rows.
Rule 3. Each action is recorded (`headwater.operations.records`).
Rule 4. An action proceeds page by page and adds its results to the caller's list. If the server refuses a page,
        the action ends there. The entries of earlier pages are reported and recorded as done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from headwater.common.model import StreamID
from headwater.groups.membership.consumers import reap as remove_consumers
from headwater.groups.membership.member import CLAIM_AFTER_FIELD, Member
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.content import ContentPages
from headwater.groups.protocol.operation import Operation, Refused, accepted, batched
from headwater.groups.reading.poison import forget
from headwater.groups.reports.pending import (
    SILENT_MS,
    GroupInfo,
    PendingDelivery,
    PendingFilter,
    deliveries,
    groups,
)
from headwater.groups.settling.dead_letters import bury as dead_letter
from headwater.groups.settling.settling import How, Settlement, settle
from headwater.messages.keys import PARKED_CONSUMER, dead_letter_stream, group_settings_key
from headwater.operations.records import Action, record

PAGE = 500
"""Maximum number of entries that are read, or acted on, in one step."""

OPERATOR = "hw.operator"
"""The consumer in whose name entries without an owner are settled, on Headwater."""


class Selection(NamedTuple):
    """The pending entries that an action applies to: those that meet all conditions given."""

    ids: Sequence[str] = ()
    """Only entries with these ids; all entries if empty."""
    consumer: str | None = None
    """Only entries that this consumer owns; None for any owner."""
    idle_ms: int = 0
    """Only entries that were idle for at least this time. On Headwater, entries without an owner always match."""
    deliveries: int = 0
    """Only entries with at least this number of deliveries."""


class Done(NamedTuple):
    """The result of an action on one entry."""

    id: str
    done: bool
    reason: str = ""
    """Reason why the action was not done; empty if it was done."""


def select_in(stream: str, group: str, which: Selection) -> Operation[list[PendingDelivery]]:
    """Return the pending entries that fit ``which``. Raises `HeadwaterError` if the group does not exist."""
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


def release(
    of: GroupInfo, rows: Sequence[PendingDelivery], done: list[Done] | None = None
) -> Operation[list[Done]]:
    """Hand entries back. Delivery counts stay as they are."""
    return (yield from _settled(of, rows, Action.RELEASE, How.FAIL, done))


def acknowledge(
    of: GroupInfo, rows: Sequence[PendingDelivery], done: list[Done] | None = None
) -> Operation[list[Done]]:
    """Acknowledge entries without handling them."""
    return (yield from _settled(of, rows, Action.ACKNOWLEDGE, How.ACK, done))


def claim(
    of: GroupInfo,
    rows: Sequence[PendingDelivery],
    done: list[Done] | None = None,
    *,
    consumer: str,
    idle_ms: int,
) -> Operation[list[Done]]:
    """Give entries to ``consumer``, except those that are idle for less than ``idle_ms`` at this time.

    A delayed entry cannot be claimed before it is due. Delivery counts stay as they are.
    """

    def page(_owner: str, part: Sequence[PendingDelivery]) -> Operation[list[Done]]:
        ids = [one.id for one in part]
        replies = yield [["XCLAIM", of.stream, of.name, consumer, idle_ms, *ids, "JUSTID"]]
        taken = {one.decode() for one in accepted(replies[0])}
        return [
            Done(
                one,
                one in taken,
                "" if one in taken else "it is delayed, or was renewed or settled meanwhile",
            )
            for one in ids
        ]

    pages = [("", part) for part in batched(rows, PAGE)]
    return (yield from _paged(of, pages, page, Action.CLAIM, done, to=consumer))


def bury(
    of: GroupInfo,
    rows: Sequence[PendingDelivery],
    done: list[Done] | None = None,
    *,
    error: str,
) -> Operation[list[Done]]:
    """Make entries dead letters with ``error`` as the reason, each in one step with its acknowledgement."""
    destination = dead_letter_stream(of.stream)
    content = ContentPages()

    def page(owner: str, part: Sequence[PendingDelivery]) -> Operation[list[Done]]:
        taken = frozenset((yield from _take(of, part)))
        found = [Done(row.id, False, _OTHERS) for row in part if row.id not in taken]
        for some in content.of([row for row in part if row.id in taken]):
            found += yield from _bury(of, _member(of, owner), some, destination, error, content)
        return found

    pages = _by_owner(of, rows)
    return (yield from _paged(of, pages, page, Action.BURY, done, to=destination))


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


def reap(stream: str, group: str, names: Sequence[str], *, unseen_ms: int) -> Operation[list[str]]:
    """Remove the consumers in ``names`` that still own nothing and were not seen for ``unseen_ms``. Return the
    names of the removed consumers."""
    able = yield from probe()
    member = Member(stream, group, "", 0, able)
    removed = yield from remove_consumers(member, unseen_ms=unseen_ms, only=names)
    yield from record(stream, Action.REAP, removed, group=group, refused=len(names) - len(removed))
    return removed


def _settled(
    of: GroupInfo,
    rows: Sequence[PendingDelivery],
    action: Action,
    how: How,
    done: list[Done] | None,
) -> Operation[list[Done]]:
    """Settle entries in the names of their owners."""

    def page(owner: str, part: Sequence[PendingDelivery]) -> Operation[list[Done]]:
        taken = yield from _take(of, part)
        steps = [Settlement(one.encode(), how) for one in taken]
        outcomes = (yield from settle(_member(of, owner), steps)) if steps else []
        pairs = zip(taken, outcomes, strict=True)
        fine = {one for one, outcome in pairs if outcome.done or outcome.gone}
        return [Done(row.id, row.id in fine, "" if row.id in fine else _OTHERS) for row in part]

    return (yield from _paged(of, _by_owner(of, rows), page, action, done))


def _paged(
    of: GroupInfo,
    pages: Iterable[tuple[str, Sequence[PendingDelivery]]],
    act: Callable[[str, Sequence[PendingDelivery]], Operation[list[Done]]],
    action: Action,
    done: list[Done] | None,
    *,
    to: str = "",
) -> Operation[list[Done]]:
    """Act on pages of entries, each in the name of the consumer given with it, and record the action."""
    found: list[Done] = [] if done is None else done
    refused: Refused | None = None
    for owner, part in pages:
        if refused is None:
            try:
                found += yield from act(owner, part)
                continue
            except Refused as error:
                if not any(one.done for one in found):
                    raise
                refused = error
        found += [Done(row.id, False, str(refused)) for row in part]
    found.sort(key=lambda one: StreamID.parse(one.id))
    ids = [one.id for one in found if one.done]
    yield from record(of.stream, action, ids, group=of.name, to=to, refused=len(found) - len(ids))
    return found


def _by_owner(
    of: GroupInfo, rows: Sequence[PendingDelivery]
) -> Iterator[tuple[str, list[PendingDelivery]]]:
    """Yield pages of entries of one owner, with the owner, or with the consumer that settles entries without one."""
    nobody = OPERATOR if of.able.verbs else PARKED_CONSUMER
    owned: dict[str, list[PendingDelivery]] = {}
    for one in rows:
        owned.setdefault(one.owner, []).append(one)
    for owner, its in owned.items():
        for part in batched(its, PAGE):
            yield owner or nobody, part


def _take(of: GroupInfo, part: Sequence[PendingDelivery]) -> Operation[list[str]]:
    """Return the ids of the entries that can be settled in their owner's name.

    On Headwater, delayed and released entries have no owner, so they are first claimed for `OPERATOR`. Delayed
    entries are handed back first, because they cannot be claimed. An entry that a worker has claimed in the
    meantime is not taken, because it has not been idle for long enough.
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
