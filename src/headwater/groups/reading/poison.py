"""Judges poison messages: decides which deaths of a process count against a message.

    claimed from a silent owner ──▶ did it run alone there? ──no──▶ excused + 1
                                              │                     twice: a suspect, which runs alone
                                             yes
                                              └──▶ crashes + 1; at max_crashes condemned: a dead letter, unless
                                                   the owner is heard of soon

Rule 1. A delivery that ended because its process died is *excused*: it does not count as an attempt,
        because another message in the process may have killed it.
Rule 2. From its second excused delivery on, every reader treats a message as a suspect (a suspected poison
        message). A suspect runs with nothing else in its process. Its record shows this before it runs.
Rule 3. A death counts against a message as a crash only if the message ran alone in the process.
Rule 4. Silence counts as a death only until the owner is heard of again. Then the death is *forgiven*: the
        delivery stays excused, but does not make the message a suspect. So only processes that have ended
        count. A process that knows that the owner is alive records this by `heard`, before or after the
        claim: the owner itself when it finds the entry lost, or its supervisor while the owner is stopped. So a
        message that is condemned by silence waits before it becomes a dead letter (`worker.read.admission`).
Rule 5. Some claims are never judged, but the store counts them as deliveries: a process dies between a claim
        and writing the record, or a blocked read of a dead machine claims. For each known death, one such
        delivery is allowed, so that it does not make a message a dead letter.

The records are in the hash ``{stream}:hw:poison:<group>``, id → excused, alone_at, crashes, left, and forgiven
and replayed unless they are 0. The hash ``{stream}:hw:heard:<group>`` has the deliveries of owners that are alive,
as ``id count``. It expires an hour after the last one was added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from headwater.common.model import StreamID
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Command, Operation, Refused, Word, accepted, mapping
from headwater.groups.reading.claiming import Delivered
from headwater.messages.keys import heard_key, poison_key

SUSPECT_FROM = 2
"""Number of excused deliveries that make a message a suspect. One is not enough, because every message in a
process that died has one."""

MAX_CRASHES = 2
"""Default number of crashes that make a message a dead letter. A single crash may have another cause, such as a
deployment or the operating system."""


HEARD_KEPT_MS = 3_600_000
"""Milliseconds for which the store remembers that an owner is alive: longer than any ``claim_after`` in use."""


class Record(NamedTuple):
    """The record of one message of a group."""

    excused: int = 0
    """Number of excused deliveries (rule 1), including the forgiven ones (rule 4)."""
    alone_at: int = 0
    """The delivery count at which the message last began to run alone; 0 for never."""
    crashes: int = 0
    """Number of processes that died while the message ran alone in them."""
    left: int = 0
    """1 if a reader handed the message back for the quarantine process, otherwise 0."""
    forgiven: int = 0
    """Number of excused deliveries whose process was heard of again."""
    replayed: int = 0
    """1 if an operator replayed the message's dead letter, so that it does not expire; otherwise 0."""

    @property
    def deaths(self) -> int:
        """Number of processes that died while the message ran in them with others."""
        return self.excused - self.forgiven

    @property
    def suspect(self) -> bool:
        """True if the message must run alone."""
        return self.suspected(isolated=False)

    def suspected(self, *, isolated: bool) -> bool:
        """Return whether the message must run alone. With ``isolated``, handlers run in pool processes, so a crash
        ends no other message."""
        return self.deaths >= SUSPECT_FROM or (self.crashes > 0 and not isolated)

    @property
    def unjudged(self) -> int:
        """Maximum number of deliveries that were not judged (rule 5)."""
        return self.excused + self.crashes

    def condemned(self, max_crashes: int = MAX_CRASHES) -> bool:
        """Return whether the message must not run again."""
        return self.crashes >= max_crashes

    @classmethod
    def parse(cls, value: bytes | None) -> Record:
        """Return the record in a hash field's value; an empty one for None or another format."""
        try:
            numbers = [int(part) for part in (value or b"").split()]
        except ValueError:
            numbers = []
        return cls(*numbers) if len(numbers) in (4, 5, 6) else cls()

    def encode(self) -> str:
        """Return the value of the hash field."""
        length = 6 if self.replayed else 5 if self.forgiven else 4
        return " ".join(map(str, self[:length]))


NO_RECORD = Record()


def judge(record: Record, *, count: int, from_silent: bool, lives: bool = False) -> Record:
    """Return the new record of a claimed message. ``count`` is its delivery count, this claim included.
    ``lives`` is true if the former owner is known to be alive.

    >>> judge(Record(), count=2, from_silent=True).encode()
    '1 0 0 0'
    >>> judge(Record(excused=2, alone_at=3), count=4, from_silent=True).encode()
    '2 0 1 0'
    >>> judge(Record(excused=1, alone_at=3), count=4, from_silent=True, lives=True).suspect
    False
    """
    if not from_silent:
        # Handing back has also undone the count. Without this, the next claim would look like a death while alone.
        return record._replace(alone_at=0) if record.alone_at >= count else record
    if lives:
        return record._replace(alone_at=0, excused=record.excused + 1, forgiven=record.forgiven + 1)
    if record.alone_at and record.alone_at == count - 1:
        return record._replace(alone_at=0, crashes=record.crashes + 1)
    return record._replace(excused=record.excused + 1)


def alone(record: Record, *, count: int) -> Record:
    """Return the record of a suspect that is about to run alone."""
    return record._replace(alone_at=count, left=0)


def outlived(record: Record) -> Record:
    """Return the record of a suspect that has run alone for long, when other messages begin to run with it.

    It no longer runs alone, so a death does not count as a crash. But one excused delivery is taken away, so
    this delivery counts as an attempt: if the process dies, the next claim only restores the excused one. So a
    message that kills its process slowly still becomes a dead letter, by its attempts.
    """
    excused = max(0, record.excused - 1)
    return record._replace(alone_at=0, excused=excused, forgiven=min(record.forgiven, excused))


def forgiven(record: Record, *, alone: bool) -> Record:
    """Return the record without the death of a live process. ``alone`` is true if the message ran alone in it."""
    if alone and record.crashes:
        record = record._replace(crashes=record.crashes - 1, excused=record.excused + 1)
    return record._replace(forgiven=min(record.excused, record.forgiven + 1))


def condemnation(record: Record) -> str:
    """Return the reason why a condemned message is a dead letter."""
    died = "1 process" if record.crashes == 1 else f"{record.crashes} processes"
    return (
        f"Crashes: {died} died while running it alone, and {record.deaths} while running it with "
        "others"
    )


# --- the hash -------------------------------------------------------------------------------------


def judged(
    member: Member,
    claimed: Sequence[Delivered],
    *,
    leave: bool,
    isolated: bool = False,
    max_crashes: int = MAX_CRASHES,
) -> Operation[dict[bytes, Record]]:
    """Judge claimed messages and write the records that changed. Return the records that are not empty.

    With ``leave``, the caller hands suspects back for the quarantine process. For ``isolated`` see
    `Record.suspected`. If the server refuses access to the hash (no permission, no memory), nothing is judged, and
    a poison message ends by `max_deliveries`, as a failing one does.
    """
    if not claimed:
        return {}
    key = poison_key(member.stream, member.group)
    heard_of = [_delivery(one.id, one.delivery_count - 1) for one in claimed]
    replies = yield [
        ["HMGET", key, *(one.id for one in claimed)],
        ["HMGET", heard_key(member.stream, member.group), *heard_of],
    ]
    if isinstance(replies[0], Refused):
        return {}
    living = [None] * len(claimed) if isinstance(replies[1], Refused) else replies[1]
    found: dict[bytes, Record] = {}
    changed: list[Word] = []
    for one, value, lives in zip(claimed, replies[0], living, strict=True):
        before = Record.parse(value)
        after = judge(
            before,
            count=one.delivery_count,
            from_silent=one.from_silent,
            lives=lives is not None,
        )
        if after.suspected(isolated=isolated) and not after.condemned(max_crashes):
            after = after._replace(left=int(leave))
        if after != NO_RECORD:
            found[one.id] = after
        if after != before:
            changed += [one.id, after.encode()]
    if changed:
        # If this is refused too, the records are valid only for this delivery, in this process.
        yield [["HSET", key, *changed]]
    return found


def heard(member: Member, deliveries: Sequence[tuple[bytes, int, bool]]) -> Operation[None]:
    """Record that the owner of these deliveries is alive, and remove the deaths that its silence has recorded.

    A delivery is an id, its delivery count at that owner, and whether it ran alone there. Recording it twice is
    harmless. A refusal by the server is ignored.
    """
    if not deliveries:
        return
    key = heard_key(member.stream, member.group)
    said = [_delivery(entry_id, count) for entry_id, count, _alone in deliveries]
    says: list[Command] = [["HSETNX", key, one, 1] for one in said]
    replies = yield [
        *says,
        ["PEXPIRE", key, HEARD_KEPT_MS],
        ["HMGET", poison_key(member.stream, member.group), *(one[0] for one in deliveries)],
    ]
    *new, _expires, values = replies
    if isinstance(values, Refused):
        return
    changed: list[Word] = []
    for (entry_id, _count, alone), first, value in zip(deliveries, new, values, strict=True):
        record = Record.parse(value)
        after = forgiven(record, alone=alone)
        if first == 1 and after != record:
            changed += [entry_id, after.encode()]
    if changed:
        yield [["HSET", poison_key(member.stream, member.group), *changed]]


def _delivery(entry_id: bytes, count: int) -> str:
    return f"{entry_id.decode()} {count}"


def write(member: Member, records: Mapping[bytes, Record]) -> Operation[None]:
    """Write the records of messages. A refusal by the server is ignored."""
    words = [word for entry_id, record in records.items() for word in (entry_id, record.encode())]
    yield [["HSET", poison_key(member.stream, member.group), *words]]


def forget(member: Member, ids: Collection[bytes]) -> Operation[None]:
    """Delete the records of settled messages."""
    if ids:
        yield [["HDEL", poison_key(member.stream, member.group), *ids]]


def records(member: Member) -> Operation[dict[bytes, Record]]:
    """Return all records. A message has one from the death of a process that owned it until it is settled.

    Fields that other clients have added, whose names are not ids, are left out. Returns an empty dict if the server
    refuses access to the hash.
    """
    replies = yield [["HGETALL", poison_key(member.stream, member.group)]]
    if isinstance(replies[0], Refused):
        return {}
    return {one: Record.parse(value) for one, value in mapping(replies[0]).items() if _is_id(one)}


def _is_id(field: bytes) -> bool:
    try:
        StreamID.parse(field)
    except ValueError:
        return False
    return True


def sweep(member: Member) -> Operation[None]:
    """Delete the records of messages that are no longer pending."""
    found = yield from records(member)
    yield from forget(member, (yield from _settled(member, list(found))))


def _settled(member: Member, ids: Sequence[bytes]) -> Operation[list[bytes]]:
    """Return those of ``ids`` that are no longer pending."""
    if not ids:
        return []
    replies = yield [["XPENDING", member.stream, member.group, one, one, 1] for one in ids]
    return [one for one, reply in zip(ids, replies, strict=True) if not accepted(reply)]
