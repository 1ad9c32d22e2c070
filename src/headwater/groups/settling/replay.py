"""Replays dead letters: hands an entry back to the group that could not handle it.

Rule 1. An entry that is still in its stream becomes pending in its own group again, with a delivery count of
        0. Other groups, which have handled it, do not get it.
Rule 2. An entry that is gone from its stream, or whose group is gone, can only be added again, and then every
        group of the stream gets it. It is added only if the stream has no other group, or the caller allows this.
Rule 3. The record is deleted in the same step, or after it if a cluster has it in another slot. The dead-letter
        stream is watched (WATCH) from before the reads until this step, so two operators do not replay a record
        twice. If it has changed, everything is read again. Reads and step need one connection, used by one thread.
Rule 4. If an entry cannot be handed back, because the entry or its group is deleted at that moment, its record is
        added to the dead-letter stream again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from headwater.common.model import StreamID
from headwater.common.names import bytes_of
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.content import CONTENT_BYTES
from headwater.groups.protocol.operation import (
    Command,
    Operation,
    Refused,
    Word,
    accepted,
    executed,
    mapping,
)
from headwater.groups.reading.poison import Record
from headwater.messages.dead import DeadLetter
from headwater.messages.keys import PARKED_CONSUMER, delays_key, poison_key

TOGETHER = 100
"""Maximum number of records that are replayed in one step; fewer if they are larger than `CONTENT_BYTES`."""

ATTEMPTS = 20
"""Maximum number of attempts of a step. It is attempted again if the dead-letter stream has changed."""


class ReplayResult(StrEnum):
    """The result of replaying a record."""

    RETURNED = "returned"
    """The entry is pending in its group again."""
    ADDED = "added"
    """The entry was added again, with a new id, because the entry or its group was gone."""
    COMING = "coming"
    """The group will get the entry anyway, because it is pending or undelivered. The record was deleted."""
    GONE = "gone"
    """Nothing was done, because another operator has replayed or deleted the record."""
    REFUSED = "refused"
    """Nothing was done, for the reason in `Replayed.reason`."""


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
    outcomes: list[Replayed] = []
    for part in _parts(letters):
        asked = _Request(destination, part[0].stream, verbs=verbs, all_groups=all_groups)
        if part[0].stream and _has_entry(part[0]):
            outcomes += yield from _together(asked, part)
        else:
            reason = (
                "it does not name its entry and stream; look at it with `headwater dead show` and "
                "drop it"
            )
            outcomes += [Replayed(one, ReplayResult.REFUSED, reason=reason) for one in part]
    return outcomes


class _Request(NamedTuple):
    """A request to replay some records."""

    destination: str
    """The dead-letter stream."""
    stream: str
    """The stream of the entries."""
    verbs: bool
    all_groups: bool


class _Step(NamedTuple):
    """The commands that replay one record, with the planned outcome."""

    outcome: Replayed
    commands: Sequence[Command] = ()
    record: Sequence[Word] = ()
    """The fields and values of the record."""


def _parts(letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Yield lists of records of one stream, of limited size, each record once. Records that name neither their entry nor
    its fields are separate."""
    part: list[DeadLetter] = []
    size = 0
    for one in letters:
        alike = part and part[0].stream == one.stream and _has_entry(part[0]) == _has_entry(one)
        again = any(other.id == one.id for other in part)
        if part and (not alike or again or len(part) == TOGETHER or size > CONTENT_BYTES):
            yield part
            part, size = [], 0
        part.append(one)
        size += sum(len(name) + len(value) for name, value in one.fields)
    if part:
        yield part


def _has_entry(letter: DeadLetter) -> bool:
    """Return whether a record has its entry's fields, or names its entry."""
    return bool(letter.fields or letter.entry_id)


def _together(asked: _Request, letters: Sequence[DeadLetter]) -> Operation[list[Replayed]]:
    """Replay records of one stream in one step."""
    for _attempt in range(ATTEMPTS):
        steps = yield from _steps(asked, letters)
        done = yield from _in_one_step(asked, steps)
        if done is not None:
            return done
    reason = f"{asked.destination!r} changed at each of {ATTEMPTS} attempts: try again"
    return [Replayed(one, ReplayResult.REFUSED, reason=reason) for one in letters]


def _steps(asked: _Request, letters: Sequence[DeadLetter]) -> Operation[list[_Step]]:
    """Watch the dead-letter stream, and decide the step for each record."""
    reads: list[Command] = []
    for one in letters:
        entry = one.entry_id or "-"
        reads += [
            ["XRANGE", asked.destination, one.id, one.id],
            ["XRANGE", asked.stream, entry, entry],
            ["XPENDING", asked.stream, one.group, entry, entry, 1],
        ]
    replies = yield [["WATCH", asked.destination], ["XINFO", "GROUPS", asked.stream], *reads]
    accepted(replies[0])
    groups = {} if isinstance(replies[1], Refused) else _last_delivered(replies[1])
    found = zip(letters, replies[2::3], replies[3::3], replies[4::3], strict=True)
    return [_step(asked, groups, *each) for each in found]


def _step(
    asked: _Request,
    groups: Mapping[bytes, bytes],
    letter: DeadLetter,
    record: Any,
    entry: Any,
    row: Any,
) -> _Step:
    """Decide the step for a record, given the last-delivered ids of the groups, and the replies with the record, its
    entry, and its row of XPENDING."""
    if not accepted(record):
        return _Step(Replayed(letter, ReplayResult.GONE))
    words = record[0][1]
    last = groups.get(bytes_of(letter.group))
    others = len(groups) - (last is not None)
    there = bool(letter.entry_id) and not isinstance(entry, Refused) and bool(entry)
    if last is not None and there:
        if accepted(row) or StreamID.parse(last) < StreamID.parse(letter.entry_id):
            return _Step(Replayed(letter, ReplayResult.COMING, letter.entry_id))
        done = Replayed(letter, ReplayResult.RETURNED, letter.entry_id)
        return _Step(done, _returned(letter, verbs=asked.verbs), words)
    if not letter.fields:
        lacks = _lacks(letter, known=last is not None)
        advice = "drop it" if last is not None else "create the group and try again"
        reason = f"{lacks}, and the record does not have the entry's fields: {advice}"
        return _Step(Replayed(letter, ReplayResult.REFUSED, reason=reason))
    if others and not asked.all_groups:
        return _Step(_refused(letter, known=last is not None, others=others))
    fields: list[Word] = [part for pair in letter.fields for part in pair]
    added: Command = ["XADD", letter.stream, "*", *fields]
    return _Step(Replayed(letter, ReplayResult.ADDED), [added], words)


def _returned(letter: DeadLetter, *, verbs: bool) -> list[Command]:
    """Return the commands that make the entry pending and due now, with a delivery count of 0, and a poison record
    that shows only that it was replayed."""
    head: list[Word] = ["XCLAIM", letter.stream, letter.group, PARKED_CONSUMER, 0, letter.entry_id]
    commands: list[Command] = [
        [*head, "TIME", 0, "RETRYCOUNT", 0, "FORCE", "JUSTID"],
        [
            "HSET",
            poison_key(letter.stream, letter.group),
            letter.entry_id,
            Record(replayed=1).encode(),
        ],
    ]
    if not verbs:
        commands.append(["ZADD", delays_key(letter.stream, letter.group), 0, letter.entry_id])
    return commands


def _last_delivered(groups: Sequence[Any]) -> dict[bytes, bytes]:
    """Return the last-delivered id of each group in XINFO GROUPS' reply."""
    found = [mapping(one) for one in groups]
    return {one[b"name"]: one[b"last-delivered-id"] for one in found}


def _in_one_step(asked: _Request, steps: Sequence[_Step]) -> Operation[list[Replayed] | None]:
    """Do all steps and delete the records in one transaction. Return the results, or None if the dead-letter stream
    has changed since it was watched."""
    records = [one.outcome.letter.id for one in steps if one.outcome.how in DONE]
    if not records:
        yield [["UNWATCH"]]
        return [one.outcome for one in steps]
    commands = [command for one in steps for command in one.commands]
    delete: Command = ["XDEL", asked.destination, *records]
    replies = yield [["MULTI"], *commands, delete, ["EXEC"]]
    if any(isinstance(one, Refused) and one.code == "CROSSSLOT" for one in replies):
        # The dead-letter stream is in another slot of the cluster: first the entries, then the records.
        done = yield [["UNWATCH"], *commands, delete]
        done = done[1:]
    elif replies[-1] is None:
        return None
    else:
        done = executed(replies)
    accepted(done[-1])
    rest = iter(done)
    outcomes = []
    for step in steps:
        outcome = yield from _outcome(asked, step, [next(rest) for _ in step.commands])
        outcomes.append(outcome)
    return outcomes


def _outcome(asked: _Request, step: _Step, replies: Sequence[Any]) -> Operation[Replayed]:
    """Return the result of a step, given the replies to its commands."""
    planned = step.outcome
    problem = next((str(one) for one in replies if isinstance(one, Refused)), "")
    if planned.how is ReplayResult.RETURNED and not problem and not replies[0]:
        problem = f"its entry {planned.entry_id} was deleted at that moment: replay its new record"
    if problem:
        again = yield [["XADD", asked.destination, "*", *step.record]]
        accepted(again[0])
        return Replayed(planned.letter, ReplayResult.REFUSED, reason=problem)
    if planned.how is ReplayResult.ADDED:
        return planned._replace(entry_id=replies[0].decode())
    return planned


def _lacks(letter: DeadLetter, *, known: bool) -> str:
    """Return why an entry cannot be made pending again. ``known`` is whether its group exists."""
    if known:
        return f"its entry {letter.entry_id} is gone from {letter.stream!r}"
    return f"stream {letter.stream!r} has no group {letter.group!r} any more"


def _refused(letter: DeadLetter, *, known: bool, others: int) -> Replayed:
    """Return the refusal to add an entry again, because other groups would get it too."""
    lacks = _lacks(letter, known=known)
    reach = "another group" if others == 1 else f"{others} other groups"
    reason = f"{lacks}, and adding it again would reach {reach}: allow that with --all-groups"
    return Replayed(letter, ReplayResult.REFUSED, reason=reason)
