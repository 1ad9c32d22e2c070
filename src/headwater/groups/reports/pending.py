"""Reports the entries that a group has not settled, to find out why it does not make progress.

These operations only read. They do not claim or renew entries, and do not change delivery counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from headwater.common.model import StreamID
from headwater.common.names import text_of
from headwater.groups.membership.consumers import ConsumerState, consumers
from headwater.groups.membership.member import CLAIM_AFTER_FIELD, SEEN_FIELD, SEEN_MS
from headwater.groups.protocol.capabilities import Capabilities, probe
from headwater.groups.protocol.missing_stream import GroupMissing, StreamMissing, of_stream
from headwater.groups.protocol.operation import (
    GroupVanished,
    Operation,
    Refused,
    Word,
    accepted,
    mapping,
    score_ms,
    server_ms,
    whole_number,
)
from headwater.groups.reports.limited import read_limited
from headwater.messages.keys import (
    PARKED_CONSUMER,
    delays_key,
    group_backup_key,
    group_settings_key,
    later_key,
)

T = TypeVar("T")

ROWS = 100
"""Default number of entries of a group that are reported."""

SILENT_MS = 300_000
"""``claim_after`` in milliseconds of a group whose workers have announced none."""


def silent_after(claim_after_ms: int | None) -> int:
    """Return the idle time in milliseconds at which an entry counts as claimable and its owner as silent."""
    return SILENT_MS if claim_after_ms is None else claim_after_ms


class PendingState(StrEnum):
    """The state of a pending entry."""

    IN_FLIGHT = "in flight"
    """A consumer owns the entry, and its idle time is less than `silent_after`."""
    PARKED = "parked"
    """The entry is delayed and not due yet."""
    LIMITED = "limited"
    """The entry waits for a limit of its consumer, and is delayed until its turn."""
    CLAIMABLE = "claimable"
    """The next worker that reads claims the entry: it is due, or its idle time has reached `silent_after`."""


class PendingDelivery(NamedTuple):
    """One pending entry. Times are in milliseconds."""

    id: str
    owner: str
    """The consumer that owns the entry; empty if it has no owner."""
    age_ms: int
    """Time since it was added to the stream, by its id."""
    idle_ms: int | None
    """Time since it was delivered, claimed or renewed; None if it has no owner."""
    deliveries: int
    state: PendingState
    due_ms: int | None
    """Time until a delayed entry is due, or None. One that waits for others of its key to end may be due sooner."""


class PendingFilter(NamedTuple):
    """The pending entries to report: the first ``most``, in id order, that meet all conditions given."""

    most: int = ROWS
    start: str = "-"
    """The first id; ``-`` is the oldest, and ``(`` before an id excludes it."""
    end: str = "+"
    consumer: str | None = None
    """Only entries that this consumer owns; None for any owner."""
    idle_ms: int = 0
    """Only entries that were not delivered, claimed or renewed for this time."""

    def words(self) -> list[Word]:
        """Return XPENDING's arguments after the group."""
        idle: list[Word] = ["IDLE", self.idle_ms] if self.idle_ms else []
        owner: list[Word] = [] if self.consumer is None else [self.consumer]
        return [*idle, self.start, self.end, self.most, *owner]


OLDEST = PendingFilter()
"""The oldest pending entries."""


class GroupPending(NamedTuple):
    """The unsettled entries of a group. Times are in milliseconds; an id is empty if there is no such entry."""

    group: str
    pending: int
    unread: int | None
    """The group's lag; None if the server does not know it."""
    oldest_unread: str
    oldest_unread_age_ms: int | None
    claim_after_ms: int | None
    """The value that the group's workers announced; None if no Headwater worker has joined."""
    last_seen: str
    """The consumer that was seen most recently; empty if only a worker's own note shows that it runs."""
    last_seen_ms: int | None
    """Time since a consumer or a worker of the group was seen; None if never."""
    next_due_ms: int | None
    """Time until the first of the reported entries is due; None if none is delayed."""
    entries: list[PendingDelivery]
    """The first pending entries, in id order."""


class GroupInfo(NamedTuple):
    """One group, with the server's facts that its reports need."""

    stream: str
    name: str
    about: Mapping[bytes, Any]
    """The group's row of XINFO GROUPS."""
    now_ms: int
    """The time of the server, in Unix milliseconds."""
    able: Capabilities


def pending(
    stream: str, group: str | None = None, which: PendingFilter = OLDEST
) -> Operation[list[GroupPending]]:
    """Report the unsettled entries of each group of ``stream``, or only of ``group``.

    Raises `HeadwaterError` if the stream or group does not exist.
    """
    return (yield from each_group(stream, group, lambda one: report(one, which)))


def scheduled_count(stream: str) -> Operation[int]:
    """Return the number of messages that are scheduled for ``stream``; 0 if the user may not read them."""
    replies = yield [["XLEN", later_key(stream)]]
    return 0 if isinstance(replies[0], Refused) else int(replies[0])


def each_group(
    stream: str, group: str | None, ask: Callable[[GroupInfo], Operation[T]]
) -> Operation[list[T]]:
    """Return the result of ``ask`` for each group of ``stream``, or only for ``group``. Groups that have been
    deleted are left out. Raises `HeadwaterError` if the stream or the group does not exist."""
    answers = []
    for one in (yield from groups(stream, group)):
        try:
            answer = yield from ask(one)
        except (StreamMissing, GroupMissing, GroupVanished):
            if group is not None:
                raise
            continue
        answers.append(answer)
    return answers


def groups(stream: str, group: str | None = None) -> Operation[list[GroupInfo]]:
    """Return the groups of ``stream``, or only ``group``. Raises `HeadwaterError` as `pending` does."""
    replies = yield [["TIME"], ["XINFO", "GROUPS", stream]]
    now_ms = server_ms(replies[0])
    found = [mapping(row) for row in (yield from of_stream(replies[1], stream))]
    names = [text_of(about[b"name"]) for about in found]
    if group is not None and group not in names:
        known = f"its groups are {', '.join(names)}" if names else "it has none"
        raise GroupMissing(f"stream {stream!r} has no group {group!r}: {known}")
    able = yield from probe()
    return [
        GroupInfo(stream, name, about, now_ms, able)
        for name, about in zip(names, found, strict=True)
        if group in (None, name)
    ]


def known_lag(about: Mapping[bytes, Any]) -> int | None:
    """Return a group's lag, given its row of XINFO GROUPS; None if it is unknown. It is also unknown if
    it is negative, as it can be after XSETID on Redis and Valkey."""
    lag: int | None = about.get(b"lag")
    return None if lag is None or lag < 0 else lag


def report(of: GroupInfo, which: PendingFilter = OLDEST) -> Operation[GroupPending]:
    """Report the unsettled entries of a group."""
    last = of.about[b"last-delivered-id"].decode()
    replies = yield [
        ["XRANGE", of.stream, f"({last}", "+", "COUNT", 1],
        ["HMGET", group_settings_key(of.stream, of.name), CLAIM_AFTER_FIELD, SEEN_FIELD],
        ["HGET", group_backup_key(of.stream, of.name), "at"],
    ]
    unread = accepted(replies[0])
    oldest = unread[0][0].decode() if unread else ""
    announced, noted = (None, None) if isinstance(replies[1], Refused) else replies[1]
    claim_after = whole_number(announced)
    entries = yield from deliveries(of, which, claim_after_ms=claim_after)
    dues = [one.due_ms for one in entries if one.due_ms is not None]
    seen = [
        one
        for one in (yield from consumers(of.stream, of.name))
        if one.state != ConsumerState.INTERNAL
    ]
    last_seen = min(seen, key=lambda one: one.idle_ms, default=None)
    # On Redis 7.0 a read that finds nothing does not count as seen, so workers note themselves that they run.
    marks = [whole_number(one) for one in (noted, replies[2])]
    ages = [max(0, of.now_ms - one) for one in marks if one is not None]
    if last_seen is not None:
        ages.append(last_seen.idle_ms)
        if last_seen.idle_ms > min(ages) + SEEN_MS:
            last_seen = None  # the note may be another worker's
    return GroupPending(
        group=of.name,
        pending=of.about[b"pending"],
        unread=known_lag(of.about),
        oldest_unread=oldest,
        oldest_unread_age_ms=_age(oldest, of.now_ms) if oldest else None,
        claim_after_ms=claim_after,
        last_seen="" if last_seen is None else last_seen.name,
        last_seen_ms=min(ages, default=None),
        next_due_ms=min(dues, default=None),
        entries=entries,
    )


def deliveries(
    of: GroupInfo, which: PendingFilter, *, claim_after_ms: int | None
) -> Operation[list[PendingDelivery]]:
    """Return pending entries of a group, given the ``claim_after`` that its workers announced."""
    replies = yield [["XPENDING", of.stream, of.name, *which.words()]]
    rows = accepted(replies[0])
    ids = [row[0] for row in rows]
    due: dict[bytes, int] = {}  # id → milliseconds until it is due
    if ids:
        due = yield from (
            _by_verbs(of.stream, of.name, ids)
            if of.able.verbs
            else _parked(of.stream, of.name, ids, of.now_ms)
        )
    found = [_entry(row, due.get(row[0]), of.now_ms, claim_after_ms) for row in rows]
    parked = [one.id for one in found if one.state is PendingState.PARKED]
    if not parked:
        return found
    waiting = (yield from read_limited(of.stream, of.name, parked)).ids
    return [one._replace(state=PendingState.LIMITED) if one.id in waiting else one for one in found]


def _parked(
    stream: str, group: str, ids: Sequence[bytes], now_ms: int
) -> Operation[dict[bytes, int]]:
    """Return id → milliseconds until it is due, on Redis and Valkey."""
    replies = yield [["ZMSCORE", delays_key(stream, group), *ids]]
    return {
        one: max(0, score_ms(at) - now_ms)
        for one, at in zip(ids, accepted(replies[0]), strict=True)
        if at is not None
    }


def _by_verbs(stream: str, group: str, ids: Sequence[bytes]) -> Operation[dict[bytes, int]]:
    replies = yield [["XDELAYED", stream, group, ids[0], ids[-1], len(ids)]]
    return {row[0]: row[1] for row in accepted(replies[0])}


def _entry(
    row: Sequence[Any], due: int | None, now_ms: int, claim_after_ms: int | None
) -> PendingDelivery:
    entry_id, owner = row[0].decode(), text_of(row[1])
    idle = None if not owner or row[2] < 0 else row[2]
    parked = owner == PARKED_CONSUMER
    if due is None and parked and idle is not None and claim_after_ms is not None:
        due = max(0, claim_after_ms - idle)
    if not owner or parked:
        state = PendingState.PARKED if due else PendingState.CLAIMABLE
        owner, idle = "", None
    else:
        silent = idle is not None and idle >= silent_after(claim_after_ms)
        state = PendingState.CLAIMABLE if silent else PendingState.IN_FLIGHT
    return PendingDelivery(
        id=entry_id,
        owner=owner,
        age_ms=_age(entry_id, now_ms),
        idle_ms=idle,
        deliveries=row[3],
        state=state,
        due_ms=due if state == PendingState.PARKED else None,
    )


def _age(entry_id: str, now_ms: int) -> int:
    return max(0, now_ms - StreamID.parse(entry_id).ms)
