"""Replaying dead letters: the entry goes back to the group that could not handle it, and to no other.

Rule 1. An entry that its stream still holds becomes pending in its own group again, with no delivery
        counted. Other groups, which have handled it, do not see it.
Rule 2. An entry whose stream or group no longer has it can only be added again, which every group of
        the stream sees. That is done only when there is no other group, or when the caller allows it.
Rule 3. The record is removed in the same step, and nothing is done when it was removed since it was
        looked at (WATCH), so two operators never replay one record twice. The driver's connection must
        be the same for both: a client with one thread and a pool has that.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from headwater.groups.capabilities import probe
from headwater.groups.operation import Command, Operation, Refused, Word, accepted, mapping
from headwater.messages import PARKED_CONSUMER, DeadLetter, delays_key, poison_key
from headwater.model import StreamID


class ReplayResult(StrEnum):
    """What became of a record that was to be replayed."""

    RETURNED = "returned"
    """The entry is pending in its group again."""
    ADDED = "added"
    """The entry was added again, with a new id: it or its group was gone from the stream."""
    COMING = "coming"
    """The group is to get the entry anyway (it is pending or undelivered); the record was removed."""
    GONE = "gone"
    """Nothing was done: another operator has replayed or dropped the record."""
    REFUSED = "refused"
    """Nothing was done; `Replayed.reason` says why."""


DONE = frozenset({ReplayResult.RETURNED, ReplayResult.ADDED, ReplayResult.COMING})
"""The results after which the record is gone and its group handles the entry."""


class Replayed(NamedTuple):
    """One record and what became of it. ``entry_id`` is empty when nothing was done."""

    letter: DeadLetter
    how: ReplayResult
    entry_id: str = ""
    reason: str = ""


def replay(
    destination: str, letters: Sequence[DeadLetter], *, all_groups: bool = False
) -> Operation[list[Replayed]]:
    """Give the entries of these records to their groups again; one outcome each, in order.

    ``destination`` is the dead-letter stream. With ``all_groups`` entries that are gone from their
    streams are added again although other groups see them too.
    """
    verbs = (yield from probe()).verbs
    outcomes = []
    for letter in letters:
        if letter.stream and letter.fields:
            replayed = yield from _replay(destination, letter, all_groups=all_groups, verbs=verbs)
            outcomes.append(replayed)
        else:
            reason = (
                "it does not say what entry of which stream it was; look at it with `headwater "
                "dead show` and drop it"
            )
            outcomes.append(Replayed(letter, ReplayResult.REFUSED, reason=reason))
    return outcomes


def _replay(
    destination: str, letter: DeadLetter, *, all_groups: bool, verbs: bool
) -> Operation[Replayed]:
    """One record. The dead-letter stream is watched from before the look until the change."""
    entry, record = letter.entry_id or "-", letter.id
    pending: list[Word] = ["XPENDING", letter.stream, letter.group, entry, entry, 1]
    replies = yield [
        ["WATCH", destination],
        ["XRANGE", destination, record, record],
        ["XINFO", "GROUPS", letter.stream],
        ["XRANGE", letter.stream, entry, entry],
        pending,
    ]
    accepted(replies[0])
    if not accepted(replies[1]):
        return (yield from _undone(Replayed(letter, ReplayResult.GONE)))
    groups = {} if isinstance(replies[2], Refused) else _last_delivered(replies[2])
    last = groups.pop(letter.group.encode(), None)
    there = bool(letter.entry_id) and not isinstance(replies[3], Refused) and bool(replies[3])
    commands: list[Command]
    if last is not None and there:
        if accepted(replies[4]) or StreamID.parse(last) < StreamID.parse(entry):
            how, commands = ReplayResult.COMING, []
        else:
            how, commands = ReplayResult.RETURNED, _returned(letter, verbs=verbs)
    elif groups and not all_groups:
        return (yield from _undone(_refused(letter, known=last is not None, others=len(groups))))
    else:
        fields: list[Word] = [part for pair in letter.fields for part in pair]
        how, commands = ReplayResult.ADDED, [["XADD", letter.stream, "*", *fields]]
    done = yield from _in_one_step(commands, ["XDEL", destination, record])
    if done is None:
        return Replayed(letter, ReplayResult.GONE)
    return Replayed(letter, how, done[0].decode() if how is ReplayResult.ADDED else entry)


def _returned(letter: DeadLetter, *, verbs: bool) -> list[Command]:
    """Have the entry pending again, due now, with no delivery counted and no crash remembered."""
    head: list[Word] = ["XCLAIM", letter.stream, letter.group, PARKED_CONSUMER, 0, letter.entry_id]
    commands: list[Command] = [
        [*head, "TIME", 0, "RETRYCOUNT", 0, "FORCE", "JUSTID"],
        ["HDEL", poison_key(letter.stream, letter.group), letter.entry_id],
    ]
    if not verbs:
        commands.append(["ZADD", delays_key(letter.stream, letter.group), 0, letter.entry_id])
    return commands


def _last_delivered(groups: Sequence[Any]) -> dict[bytes, bytes]:
    """XINFO GROUPS: the last id that each group was given."""
    found = [mapping(one) for one in groups]
    return {one[b"name"]: one[b"last-delivered-id"] for one in found}


def _undone(outcome: Replayed) -> Operation[Replayed]:
    """Change nothing."""
    yield [["UNWATCH"]]
    return outcome


def _in_one_step(commands: list[Command], remove: Command) -> Operation[list[Any] | None]:
    """The replies; None when the dead-letter stream has changed since it was watched."""
    replies = yield [["MULTI"], *commands, remove, ["EXEC"]]
    if any(isinstance(one, Refused) and one.code == "CROSSSLOT" for one in replies):
        # A dead-letter stream in another slot of a cluster: first the entry, then the record.
        replies = yield [["UNWATCH"], *commands, remove]
        return [accepted(one) for one in replies[1:]]
    done: list[Any] | None = accepted(replies[-1])
    for one in done or ():
        if isinstance(one, Exception):
            raise one
    return done


def _refused(letter: DeadLetter, *, known: bool, others: int) -> Replayed:
    """Adding the entry again would reach groups that have handled it."""
    lacks = (
        f"its entry {letter.entry_id} is gone from {letter.stream!r}"
        if known
        else f"stream {letter.stream!r} has no group {letter.group!r} any more"
    )
    reach = "another group" if others == 1 else f"{others} other groups"
    reason = f"{lacks}, and adding it again would reach {reach}: allow that with --all-groups"
    return Replayed(letter, ReplayResult.REFUSED, reason=reason)
