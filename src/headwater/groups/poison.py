"""Poison messages: which deaths of a process count against a message.

    claimed from a silent owner ──▶ did it run alone there? ──no──▶ excused + 1
                                              │                     twice: a suspect, which runs alone
                                             yes
                                              └──▶ crashes + 1; at max_crashes a dead letter

Rule 1. A delivery that ended because its process died is excused: which message is to blame is unknown, so it does
        not count as an attempt.
Rule 2. From the second excused delivery on a message is a suspect, to every reader. A suspect runs
        with nothing else in its process, and its record says so before it runs.
Rule 3. Only a death alone counts against a message.
Rule 4. A claim that no process judges excuses nothing, and is counted by the store: a process dies between
        a claim and its record, or a read that a dead machine left in the server claims. For each death
        that is known, one such delivery is allowed for, so that it makes no message a dead letter.

The records are in the hash ``{stream}:hw:poison:<group>``, id → excused, alone_at, crashes, left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from headwater.groups.claiming import Delivered
from headwater.groups.member import Member
from headwater.groups.operation import Operation, Refused, Word, accepted, mapping
from headwater.messages import poison_key

SUSPECT_FROM = 2
"""Excused deliveries that make a message a suspect. One proves nothing: every message of that process has it too."""

MAX_CRASHES = 2
"""Deaths alone that make a message a dead letter, unless its consumer declares another number. One may
be chance: a deployment, the system."""


class Record(NamedTuple):
    """What a group remembers of one message."""

    excused: int = 0
    """Deliveries that ended because their process died, with neighbours."""
    alone_at: int = 0
    """The delivery count at which it last began to run alone; 0 for never."""
    crashes: int = 0
    """Processes that died while it ran alone in them."""
    left: int = 0
    """1: a reader handed it back for the process that handles only suspects."""

    @property
    def suspect(self) -> bool:
        """It runs alone."""
        return self.excused >= SUSPECT_FROM or self.crashes > 0

    @property
    def unjudged(self) -> int:
        """Deliveries that nobody judged, at most (rule 4)."""
        return self.excused + self.crashes

    def condemned(self, max_crashes: int = MAX_CRASHES) -> bool:
        """It does not run again."""
        return self.crashes >= max_crashes

    @classmethod
    def parse(cls, value: bytes | None) -> Record:
        """The record that a hash field holds; an empty one for no field, or one of another format."""
        try:
            numbers = [int(part) for part in (value or b"").split()]
        except ValueError:
            numbers = []
        return cls(*numbers) if len(numbers) == len(cls._fields) else cls()

    def encode(self) -> str:
        """The value of a hash field."""
        return " ".join(str(number) for number in self)


NO_RECORD = Record()


def judge(record: Record, *, count: int, from_silent: bool) -> Record:
    """The record of a message that was claimed; ``count`` is its delivery count, the claim included.

    >>> judge(Record(), count=2, from_silent=True)
    Record(excused=1, alone_at=0, crashes=0, left=0)
    >>> judge(Record(excused=2, alone_at=3), count=4, from_silent=True)
    Record(excused=2, alone_at=0, crashes=1, left=0)
    """
    if not from_silent:
        # A hand-back gave the count back too: at the next claim it would look as if it died alone.
        return record._replace(alone_at=0) if record.alone_at >= count else record
    if record.alone_at and record.alone_at == count - 1:
        return record._replace(alone_at=0, crashes=record.crashes + 1)
    return record._replace(excused=record.excused + 1)


def alone(record: Record, *, count: int) -> Record:
    """The record of a suspect that is about to run alone."""
    return record._replace(alone_at=count, left=0)


def outlived(record: Record) -> Record:
    """The record of a suspect that has run alone for long, and gets neighbours now.

    It no longer runs alone, so a death does not count as a crash. But this delivery counts as an
    attempt: if the process dies, the delivery is excused a second time. So a message that kills
    slowly still ends as a dead letter, by its attempts.
    """
    return record._replace(alone_at=0, excused=max(0, record.excused - 1))


def condemnation(record: Record) -> str:
    """Why a condemned message is a dead letter."""
    died = "1 process" if record.crashes == 1 else f"{record.crashes} processes"
    return (
        f"Crashes: {died} died while running it alone, and {record.excused} while running it with "
        "others"
    )


# --- the hash -------------------------------------------------------------------------------------


def judged(
    member: Member,
    claimed: Sequence[Delivered],
    *,
    leave: bool,
    max_crashes: int = MAX_CRASHES,
) -> Operation[dict[bytes, Record]]:
    """Judge what was claimed and write down what changed; the records that are not empty.

    ``leave``: suspects are handed back by the caller, for the process that handles only suspects.
    A server that refuses the hash (no permission, no memory) judges nobody: `max_deliveries` ends
    what kills its process then, as it ends what fails.
    """
    if not claimed:
        return {}
    key = poison_key(member.stream, member.group)
    replies = yield [["HMGET", key, *(one.id for one in claimed)]]
    if isinstance(replies[0], Refused):
        return {}
    found: dict[bytes, Record] = {}
    changed: list[Word] = []
    for one, value in zip(claimed, replies[0], strict=True):
        before = Record.parse(value)
        after = judge(before, count=one.delivery_count, from_silent=one.from_silent)
        if after.suspect and not after.condemned(max_crashes):
            after = after._replace(left=int(leave))
        if after != NO_RECORD:
            found[one.id] = after
        if after != before:
            changed += [one.id, after.encode()]
    if changed:
        # A refusal is as above: what this process knows holds for this delivery.
        yield [["HSET", key, *changed]]
    return found


def write(member: Member, id: bytes, record: Record) -> Operation[None]:
    """Remember ``record`` of one message. A server that refuses it remembers nothing."""
    yield [["HSET", poison_key(member.stream, member.group), id, record.encode()]]


def forget(member: Member, ids: Collection[bytes]) -> Operation[None]:
    """Drop the records of settled messages."""
    if ids:
        yield [["HDEL", poison_key(member.stream, member.group), *ids]]


def records(member: Member) -> Operation[dict[bytes, Record]]:
    """All records: of messages that a process held when it died, until they are settled.

    A server that refuses the hash has none.
    """
    replies = yield [["HGETALL", poison_key(member.stream, member.group)]]
    if isinstance(replies[0], Refused):
        return {}
    return {one: Record.parse(value) for one, value in mapping(replies[0]).items()}


def sweep(member: Member) -> Operation[None]:
    """Drop the records of messages that are no longer pending."""
    found = yield from records(member)
    yield from forget(member, (yield from _settled(member, list(found))))


def _settled(member: Member, ids: Sequence[bytes]) -> Operation[list[bytes]]:
    """Those that are no longer pending."""
    if not ids:
        return []
    replies = yield [["XPENDING", member.stream, member.group, one, one, 1] for one in ids]
    return [one for one, reply in zip(ids, replies, strict=True) if not accepted(reply)]
