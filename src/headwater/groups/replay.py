"""Replaying dead letters: handing an entry back to the group that could not handle it.

Rule 1. An entry that its stream still has becomes pending in its own group again, with a delivery count of
        0. Other groups, which have handled it, do not get it.
Rule 2. An entry that is gone from its stream, or whose group is gone, can only be added again, and then every
        group of the stream gets it. This is done only if there is no other group, or if the caller allows it.
Rule 3. The record is deleted in the same step. Nothing is done if the record was deleted since it was read
        (WATCH), so two operators never replay a record twice. This needs one connection for both steps, which
        a client with a pool has if one thread uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from headwater.groups.capabilities import probe
from headwater.groups.operation import Command, Operation, Refused, Word, accepted, mapping
from headwater.messages import PARKED_CONSUMER, DeadLetter, delays_key, poison_key
from headwater.model import StreamID
from headwater.names import bytes_of


class ReplayResult(StrEnum):
    """The result of replaying a record."""

    RETURNED = "returned"
    """The entry is pending in its group again."""
    ADDED = "added"
    """The entry was added again, with a new id, because it or its group was gone."""
    COMING = "coming"
    """The group will get the entry anyway (it is pending or undelivered). The record was deleted."""
    GONE = "gone"
    """Nothing was done: another operator has replayed or deleted the record."""
    REFUSED = "refused"
    """Nothing was done; `Replayed.reason` says why."""


DONE = frozenset({ReplayResult.RETURNED, ReplayResult.ADDED, ReplayResult.COMING})
"""The results after which the record is deleted and the group will handle the entry."""


class Replayed(NamedTuple):
    """One record and its result. ``entry_id`` is empty if nothing was done."""

    letter: DeadLetter
    how: ReplayResult
    entry_id: str = ""
    reason: str = ""


def replay(
    destination: str, letters: Sequence[DeadLetter], *, all_groups: bool = False
) -> Operation[list[Replayed]]:
    """Hand the entries of these records back to their groups. Return one result for each, in order.

    ``destination`` is the dead-letter stream. With ``all_groups``, entries that are gone from their streams
    are added again even if other groups get them too.
    """
    verbs = (yield from probe()).verbs
    outcomes = []
    for letter in letters:
        if letter.stream and letter.fields:
            replayed = yield from _replay(destination, letter, all_groups=all_groups, verbs=verbs)
            outcomes.append(replayed)
        else:
            reason = (
                "it does not name its entry and stream; look at it with `headwater dead show` and "
                "drop it"
            )
            outcomes.append(Replayed(letter, ReplayResult.REFUSED, reason=reason))
    return outcomes


def _replay(
    destination: str, letter: DeadLetter, *, all_groups: bool, verbs: bool
) -> Operation[Replayed]:
    """Replay one record. The dead-letter stream is watched from before the reads until the change."""
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
    last = groups.pop(bytes_of(letter.group), None)
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
    """Return the commands that make the entry pending and due now, with a delivery count of 0 and without a
    poison record."""
    head: list[Word] = ["XCLAIM", letter.stream, letter.group, PARKED_CONSUMER, 0, letter.entry_id]
    commands: list[Command] = [
        [*head, "TIME", 0, "RETRYCOUNT", 0, "FORCE", "JUSTID"],
        ["HDEL", poison_key(letter.stream, letter.group), letter.entry_id],
    ]
    if not verbs:
        commands.append(["ZADD", delays_key(letter.stream, letter.group), 0, letter.entry_id])
    return commands


def _last_delivered(groups: Sequence[Any]) -> dict[bytes, bytes]:
    """Return the last-delivered id of each group in XINFO GROUPS' reply."""
    found = [mapping(one) for one in groups]
    return {one[b"name"]: one[b"last-delivered-id"] for one in found}


def _undone(outcome: Replayed) -> Operation[Replayed]:
    """End the WATCH without a change, and return the result."""
    yield [["UNWATCH"]]
    return outcome


def _in_one_step(commands: list[Command], remove: Command) -> Operation[list[Any] | None]:
    """Run the commands and ``remove`` in one step. Return the replies, or None if the dead-letter stream has
    changed since it was watched."""
    replies = yield [["MULTI"], *commands, remove, ["EXEC"]]
    if any(isinstance(one, Refused) and one.code == "CROSSSLOT" for one in replies):
        # The dead-letter stream is in another slot of the cluster: first the entry, then the record.
        replies = yield [["UNWATCH"], *commands, remove]
        return [accepted(one) for one in replies[1:]]
    done: list[Any] | None = accepted(replies[-1])
    for one in done or ():
        if isinstance(one, Exception):
            raise one
    return done


def _refused(letter: DeadLetter, *, known: bool, others: int) -> Replayed:
    """Return the refusal to add an entry again that other groups would get too."""
    lacks = (
        f"its entry {letter.entry_id} is gone from {letter.stream!r}"
        if known
        else f"stream {letter.stream!r} has no group {letter.group!r} any more"
    )
    reach = "another group" if others == 1 else f"{others} other groups"
    reason = f"{lacks}, and adding it again would reach {reach}: allow that with --all-groups"
    return Replayed(letter, ReplayResult.REFUSED, reason=reason)
