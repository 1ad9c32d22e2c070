"""Finds out why a group is stuck: the causes, each with its evidence and the command that ends it, if any.

Rule 1. The causes are a pure function of observations.
Rule 2. A cause is named only if an observation shows it. What the server does not report is not guessed.
Rule 3. A cause that no command can end is reported as such: time, more workers, or the program that sent the
        entries must end it.
Rule 4. Normal causes (`Cause.normal`) are reported, but the group is healthy: for example, an entry waits for its
        retry, or for the retry of an earlier entry of its key.

An owner is silent after ``claim_after``, or after five minutes if the group's workers announced none. An entry is
overdue if it has been idle for twice that time.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from headwater.common.model import StreamID
from headwater.groups.membership.consumers import ACTIVE_MS
from headwater.groups.reading.claiming import MAX_BLOCK_MS
from headwater.groups.reading.poison import condemnation
from headwater.groups.reports.held import HeldKey
from headwater.groups.reports.pending import PendingDelivery, PendingState
from headwater.messages.keys import group_settings_key
from headwater.operations.observation import Observation
from headwater.operations.times import length_of_time

LEAST_LAG_MS = 1_000
"""Minimum age of the oldest unread entry of a slow group, in milliseconds."""

LATE_TICK_MS = 60_000
"""Delay of a tick, in milliseconds, after which no worker can be expected to add it."""

MOST_UNUSED = 100
"""Normal maximum number of stopped consumers that own nothing. A worker that stops removes its own, and
running workers remove others after a day. With more, workers die often, or programs never remove theirs."""


class CauseName(StrEnum):
    """The causes, in the order in which they are reported."""

    REFUSES = "the server refuses"
    REPLICATION = "replication"
    VANISHED = "the group is gone"
    DEAD_CONSUMER = "dead consumer"
    NOBODY_CLAIMS = "nobody claims"
    NOBODY_READS = "nobody reads"
    TOO_EARLY = "claimed too early"
    POISON = "poison"
    GONE = "gone"
    TRIMMED = "trimmed unread"
    NO_TICKS = "no ticks"
    HUNG = "hung"
    TRANSFER = "large transfer"
    SLOW = "slow"
    UNUSED = "unused consumers"
    HELD = "held by its key"
    DELAYED = "delayed"
    LIMITED = "limited"
    EXPIRED = "expired"
    SCHEDULE = "schedule"


class Cause(NamedTuple):
    """One reason why a group does not make progress."""

    name: CauseName
    statement: str
    """The observation, as one sentence."""
    entries: Sequence[str] = ()
    """Ids of the entries that the cause concerns, as far as they were examined."""
    fix: str = ""
    """The ``headwater`` command line that ends the cause; empty if no single command does."""
    server: Sequence[str] = ()
    """The server command that ends the cause, if no ``headwater`` command does; otherwise empty."""
    normal: bool = False
    """True if this is as declared, such as a wait for a retry. A group that has only such causes is healthy."""


def unhealthy(found: Sequence[Cause]) -> bool:
    """Return whether any of these causes is not normal."""
    return not all(one.normal for one in found)


def causes(now: Observation, before: Observation | None = None) -> list[Cause]:
    """Return the causes that keep a group stuck, and normal ones. A healthy group has only normal causes.

    ``before`` is an earlier observation of the same group. Without it, slow readers cannot be found.
    """
    found: list[Cause] = [*_refuses(now), *_replication(now)]
    dead = [*_dead_consumers(now)]
    found += dead
    found += _nobody_claims(now)
    found += _nobody_reads(now)
    found += _too_early(now)
    found += _poison(now)
    found += _gone(now)
    found += _trimmed(now)
    found += _ticks(now)
    found += _hung(now)
    found += _transfers(now)
    if before is not None and not now.hung and not now.transfers and not now.limited.total:
        found += _slow(now, before)
    found += _unused(now)
    found += _held(now)
    found += _delayed(now)
    found += _limited(now)
    found += _expired(now)
    return sorted(
        found, key=lambda one: one.name is CauseName.SCHEDULE
    )  # reported after the other causes


def overdue_ms(seen: Observation) -> int:
    """Return the idle time in milliseconds of an overdue entry: twice the time after which a worker would claim it."""
    return 2 * seen.silent_ms


def unseen_ms(seen: Observation) -> int:
    """Return the milliseconds without a read after which nobody is assumed to read the group: twice the longest
    blocking read of a worker, or a minute for a group that Headwater's workers have not joined."""
    return ACTIVE_MS if seen.group.claim_after_ms is None else 2 * MAX_BLOCK_MS


def _refuses(now: Observation) -> Iterator[Cause]:
    for one in now.server.found:
        yield Cause(CauseName.REFUSES, f"{one.code}: {one.statement}", server=one.fix)


def _replication(now: Observation) -> Iterator[Cause]:
    """Yield what is wrong with the server's replication. It is normal for a group whose server requires no replica, and
    `headwater replicas` says that it is wrong."""
    for one in now.server.replication:
        text = f"{one.name}: {one.statement}"
        yield Cause(CauseName.REPLICATION, text, normal=not now.server.waits)


def _dead_consumers(now: Observation) -> Iterator[Cause]:
    """Yield a cause for each consumer that owns entries but was not seen and renewed nothing for `silent_ms`."""
    for consumer in now.consumers:
        if not consumer.pending or consumer.idle_ms < now.silent_ms:
            continue
        owned = [one for one in now.idle if one.owner == consumer.name]
        fresh = any(
            one.owner == consumer.name and (one.idle_ms or 0) < now.silent_ms
            for one in now.group.entries
        )
        if fresh or not owned:
            continue
        yield Cause(
            CauseName.DEAD_CONSUMER,
            f"consumer {consumer.name} owns {_entries(consumer.pending)} and was not seen for "
            f"{length_of_time(consumer.idle_ms)}; it counts as silent after {length_of_time(now.silent_ms)}",
            [one.id for one in owned],
            _command("pending", "release", now, "--consumer", consumer.name),
        )


def _nobody_claims(now: Observation) -> Iterator[Cause]:
    """Yield a cause for entries that are overdue, or that have no owner while nobody reads."""
    longest = overdue_ms(now)
    overdue = [one for one in now.idle if one.idle_ms is not None and one.idle_ms > longest]
    if not overdue and not _is_read(now, longest):
        overdue = [one for one in now.idle if not one.owner]
    if not overdue:
        return
    oldest = max(one.idle_ms or 0 for one in overdue)
    since = f"idle for up to {length_of_time(oldest)}" if oldest else "without an owner"
    readers = [one for one in now.consumers if one.idle_ms < unseen_ms(now)]
    if readers:
        reader = min(readers, key=lambda one: one.idle_ms).name
        cure, fix = "", _command("pending", "claim", now, "--to", reader, "--idle", f"{longest}ms")
    else:
        cure, fix = "; no consumer reads: start a worker", ""
    yield Cause(
        CauseName.NOBODY_CLAIMS,
        f"{_entries(len(overdue), now)} can be claimed, {since}, and nobody claims them{cure}",
        [one.id for one in overdue],
        fix,
    )


def _nobody_reads(now: Observation) -> Iterator[Cause]:
    age, longest = now.group.oldest_unread_age_ms, unseen_ms(now)
    if age is None or age <= longest or _is_read(now, longest):
        return
    seen = (
        "no consumer was ever seen"
        if now.seen_ms is None
        else f"the last consumer was seen {length_of_time(now.seen_ms)} ago"
    )
    yield Cause(
        CauseName.NOBODY_READS,
        f"{_unread(now)} unread, the oldest for {length_of_time(age)}, and {seen}: start a worker of group "
        f"{now.group.group}",
        [now.group.oldest_unread],
    )


def _too_early(now: Observation) -> Iterator[Cause]:
    """Yield a cause for entries that were claimed at least twice while another worker was running them."""
    again = {one: times for one, times in now.early.items() if times >= 2}
    if again:
        yield Cause(
            CauseName.TOO_EARLY,
            f"{_entries(len(again))} claimed up to {max(again.values())} times recently while a worker "
            f"still ran them: claim_after is {length_of_time(now.silent_ms)}, and these workers could not renew for "
            "longer (suspended, swapping, or cut off from the store). Give the consumers a longer lease.",
            list(again),
        )


def _poison(now: Observation) -> Iterator[Cause]:
    for entry_id, record in now.poison.items():
        yield Cause(
            CauseName.POISON,
            f"{entry_id} is a suspected poison message ({condemnation(record)}): it runs alone, in a pool "
            "process or in a worker that `headwater work` supervises",
            [entry_id],
            _command("pending", "bury", now, entry_id),
        )


def _gone(now: Observation) -> Iterator[Cause]:
    if not now.missing:
        return
    yield Cause(
        CauseName.GONE,
        f"{_entries(len(now.missing), now)} pending but deleted from the stream: no worker can get them, and "
        "the next one that claims drops them",
        list(now.missing),
    )


def _trimmed(now: Observation) -> Iterator[Cause]:
    if now.never_read:
        yield Cause(
            CauseName.TRIMMED,
            f"at least {_entries(now.never_read)} trimmed or deleted before the group read them: the group "
            "has lost them",
        )


def _ticks(now: Observation) -> Iterator[Cause]:
    """Yield the schedule by which messages are added to the stream, or a cause if nobody adds them."""
    ticks = now.ticks
    if ticks is None:
        return
    last = "no tick yet"
    if ticks.ticked_ms is not None:
        last = f"last tick {length_of_time(max(0, ticks.now_ms - ticks.ticked_ms))} ago"
    left = None if ticks.next_ms is None else ticks.next_ms - ticks.now_ms
    if left is not None and left < -LATE_TICK_MS:
        yield Cause(
            CauseName.NO_TICKS,
            f"{ticks.rule}: {last}, and the next was due {length_of_time(-left)} ago: no worker adds it. Start one; "
            "the declaration says whether missed ticks are added then",
        )
        return
    following = "no next tick" if left is None else f"next in {length_of_time(max(0, left))}"
    yield Cause(CauseName.SCHEDULE, f"{ticks.rule}: {last}, {following}", normal=True)


def _hung(now: Observation) -> Iterator[Cause]:
    """Yield a cause for each worker that reports that none of its handlers ends."""
    for name, sentence in sorted(now.hung.items()):
        yield Cause(
            CauseName.HUNG,
            f"consumer {name}: {sentence}. Find out what the handler waits for, and give it a timeout; a restart of "
            "the process frees its slots.",
        )


def _transfers(now: Observation) -> Iterator[Cause]:
    """Yield the large transfers that workers report. Nothing is stuck while bytes move."""
    for name, sentence in sorted(now.transfers.items()):
        yield Cause(
            CauseName.TRANSFER,
            f"consumer {name}: {sentence}. It takes the time that the link needs.",
            normal=True,
        )


def _slow(now: Observation, before: Observation) -> Iterator[Cause]:
    """Yield a cause if readers are active, but unread entries were older than the window and grow older."""
    window = now.at_ms - before.at_ms
    age, earlier = now.group.oldest_unread_age_ms, before.group.oldest_unread_age_ms
    if age is None or earlier is None or window <= 0 or not _is_read(now, unseen_ms(now)):
        return
    if earlier >= max(window, LEAST_LAG_MS) and age > earlier:
        yield Cause(
            CauseName.SLOW,
            f"workers read, but not as fast as entries are added: {_unread(now)} unread, the oldest for "
            f"{length_of_time(age)}, {length_of_time(age - earlier)} more than {length_of_time(window)} ago. "
            "Start more workers, or make the handler faster.",
            [now.group.oldest_unread],
        )


def _unused(now: Observation) -> Iterator[Cause]:
    """Yield a cause if more than `MOST_UNUSED` consumers own nothing and were not seen for a while."""
    longest = max(now.silent_ms, unseen_ms(now))
    idle = [one.idle_ms for one in now.consumers if not one.pending and one.idle_ms > longest]
    if len(idle) > MOST_UNUSED:
        yield Cause(
            CauseName.UNUSED,
            f"{len(idle):,} consumers own nothing and were not seen for {length_of_time(longest)} or longer: programs "
            "that stop without removing theirs, or workers that die again and again",
            fix=_command("consumers", "reap", now, "--unseen", f"{longest}ms"),
        )


def vanished(stream: str, group: str, statement: str) -> Cause:
    """Return the cause for a group that has ceased to exist."""
    return Cause(
        CauseName.VANISHED,
        f"{statement}: the group, or its stream, was deleted, has expired or was flushed. Workers create the group "
        f"again, with what their last backup says is pending; if this was intended, delete "
        f"{group_settings_key(stream, group)} as well",
    )


def _held(now: Observation) -> Iterator[Cause]:
    """Yield a cause for each key of an ordered group whose entries have waited for more than `overdue_ms`."""
    longest = overdue_ms(now)
    for one in now.held:
        if now.at_ms - StreamID.parse(one.waiting[0]).ms > longest:
            yield held(one, now)


def held(one: HeldKey, now: Observation) -> Cause:
    """Return the cause of a wait of a key's entries, however short the wait is."""
    waiting = _entries(one.total)
    waits = {PendingState.PARKED, PendingState.LIMITED}
    delayed = {row.id for row in now.group.entries if row.state in waits}
    return Cause(
        CauseName.HELD,
        f"{waiting} of the key {one.key!r} wait for {one.first}, which was added before: "
        f"it runs, or waits for its retry",
        [*one.waiting],
        normal=one.first in delayed,
    )


def _delayed(now: Observation) -> Iterator[Cause]:
    """Yield a cause for entries whose retry is due in more than `overdue_ms`."""
    later = [
        one
        for one in now.group.entries
        if (one.due_ms or 0) > overdue_ms(now) and one.state is PendingState.PARKED
    ]
    if later:
        due = min(one.due_ms or 0 for one in later)
        yield Cause(
            CauseName.DELAYED,
            f"{_entries(len(later), now)} delayed by their retry policy, the first for "
            f"{length_of_time(due)} more",
            [one.id for one in later],
            normal=True,
        )


def _limited(now: Observation) -> Iterator[Cause]:
    """Yield a cause for entries that wait for a limit of their consumer."""
    waiting = min(now.limited.total, now.group.pending)
    if waiting:
        more = f", and {_unread(now)} unread" if now.group.unread else ""
        yield Cause(
            CauseName.LIMITED,
            f"{_entries(waiting)} wait for the limit that their consumer declares{more}",
            sorted(now.limited.ids),
            normal=True,
        )


def _expired(now: Observation) -> Iterator[Cause]:
    """Yield a cause for entries that no worker has started within their ``expires``."""
    seen = now.expired
    if seen.dropped or seen.dead:
        yield Cause(
            CauseName.EXPIRED,
            f"{_entries(seen.dropped + seen.dead)} expired in the last {length_of_time(now.at_ms - seen.since_ms)}: not "
            f"started within their `expires` ({seen.dropped:,} dropped, {seen.dead:,} made dead letters). If that is "
            "too many, start more workers.",
            normal=True,
        )


def delayed(one: PendingDelivery) -> Cause:
    """Return the cause of a delayed entry's wait, however short the wait is."""
    return Cause(
        CauseName.DELAYED,
        f"{one.id} is delayed by its retry policy: it is due in {length_of_time(one.due_ms or 0)}",
        [one.id],
        normal=True,
    )


# --- words ----------------------------------------------------------------------------------------


def _is_read(now: Observation, longest: int) -> bool:
    """Return whether any member of the group was seen within ``longest`` milliseconds."""
    return now.seen_ms is not None and now.seen_ms <= longest


def _entries(count: int, examined: Observation | None = None) -> str:
    """Return ``3 entries``, or ``at least 3 entries`` if not all pending entries were examined."""
    least = ""
    if examined is not None and examined.group.pending > len(examined.group.entries):
        least = "at least "
    return f"{least}{count:,} {'entry' if count == 1 else 'entries'}"


def _unread(now: Observation) -> str:
    count = now.group.unread
    return "entries are" if count is None else f"{_entries(count)} {'is' if count == 1 else 'are'}"


def _command(noun: str, verb: str, now: Observation, *words: str) -> str:
    return shlex.join(["headwater", noun, verb, now.stream, now.group.group, *words])
