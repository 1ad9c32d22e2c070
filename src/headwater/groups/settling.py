"""Settling: how a delivery ends. Nothing changes that the member does not own any more.

Rule 1. A settlement is owner-checked, and with it what it adds: a former owner publishes nothing.
Rule 2. Sent twice it does no harm: the first one ended the ownership that the second would need. So
        a batch whose reply was lost may be sent again.
Rule 3. In one batch each settlement stands alone: one that fails does not undo its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from headwater.groups.member import Member
from headwater.groups.operation import Command, Operation, Refused, Word, accepted, executed
from headwater.groups.scripts import RENEW, SETTLE
from headwater.messages import PARKED_CONSUMER, Pairs, hash_tag

LUA_WORDS = 7_000
"""Most words of one XADD inside Lua, whose stack holds 8,000."""


class How(StrEnum):
    """The ends of a delivery, by the words of XSETTLE."""

    ACK = "ACK"
    ACKDEL = "ACKDEL"
    """Acknowledged and deleted, whichever group still needs it."""
    ACKED = "ACKED"
    """Acknowledged, and deleted as soon as every group has acknowledged it (`deleting`)."""
    SILENT = "SILENT"
    """Handed back unharmed: this delivery is not counted."""
    FAIL = "FAIL"
    """To be tried again: this delivery counts."""


class Addition(NamedTuple):
    """An entry to be added in one step with a settlement."""

    stream: str
    fields: Pairs
    maxlen: int | None = None
    """Trim the stream to about so many entries."""

    def words(self) -> list[Word]:
        """XADD's arguments after the key."""
        return [*self._trim(), "*", *(part for pair in self.fields for part in pair)]

    def to(self) -> list[Word]:
        """XSETTLE's TO clause."""
        fields = [part for pair in self.fields for part in pair]
        return ["TO", self.stream, *self._trim(), "*", "FIELDS", len(self.fields), *fields]

    def _trim(self) -> list[Word]:
        return [] if self.maxlen is None else ["MAXLEN", "~", self.maxlen]


class Settlement(NamedTuple):
    """How the delivery of entry ``id`` ends. ``delay_ms`` only with SILENT and FAIL."""

    id: bytes
    how: How
    delay_ms: int = 0
    additions: Sequence[Addition] = ()


class Outcome(NamedTuple):
    """What became of a settlement. ``done`` is False when the entry was not owned any more, or
    when ``error`` says why the additions could not be made; then nothing was changed."""

    done: bool
    added: Sequence[bytes] = ()
    error: Refused | None = None
    gone: bool = False
    """It was to come again, but its entry is gone from the stream; so it is not pending any more."""


def settle(member: Member, settlements: Sequence[Settlement]) -> Operation[list[Outcome]]:
    """Carry out settlements; one outcome each, in order. `GroupVanished` when the group is gone."""
    # Other slots cannot be written in the same step: publish, then settle, at least once.
    apart = {n: s for n, s in enumerate(settlements) if s.additions and _apart(member, s)}
    refused = (yield from _published(apart)) if apart else {}
    rest = [
        s._replace(additions=()) if n in apart else s
        for n, s in enumerate(settlements)
        if n not in refused
    ]
    settled = iter((yield from _in_one_step(member, rest)))
    return [refused[n] if n in refused else next(settled) for n in range(len(settlements))]


def _in_one_step(member: Member, settlements: Sequence[Settlement]) -> Operation[list[Outcome]]:
    if not settlements:
        return []
    if member.able.verbs:
        return (yield from _by_verbs(member, settlements))
    return (yield from _by_script(member, settlements))


def one_step(member: Member, destination: str) -> bool:
    """Whether adding to ``destination`` and settling can be one step on this server."""
    return not member.able.cluster or _slot_words(member.stream) == _slot_words(destination)


def _slot_words(key: str) -> str:
    return hash_tag(key) or key


def _apart(member: Member, settlement: Settlement) -> bool:
    for addition in settlement.additions:
        if not one_step(member, addition.stream):
            return True
        if not member.able.verbs and 2 * len(addition.fields) > LUA_WORDS:
            return True
    return False


def _published(apart: Mapping[int, Settlement]) -> Operation[dict[int, Outcome]]:
    """Make the additions of these settlements by XADD; outcomes of those that were refused."""
    commands: list[Command] = [
        ["XADD", addition.stream, *addition.words()]
        for settlement in apart.values()
        for addition in settlement.additions
    ]
    replies = iter((yield commands))
    refused = {}
    for n, settlement in apart.items():
        answers = [next(replies) for _ in settlement.additions]
        errors = [one for one in answers if isinstance(one, Refused)]
        if errors:
            refused[n] = Outcome(done=False, error=errors[0])
    return refused


def _by_verbs(member: Member, settlements: Sequence[Settlement]) -> Operation[list[Outcome]]:
    """Plain ones of a kind share an XSETTLE; each with additions is one of its own."""
    alike: dict[object, list[int]] = {}
    for index, settlement in enumerate(settlements):
        kind = index if settlement.additions else (settlement.how, settlement.delay_ms)
        alike.setdefault(kind, []).append(index)
    head = ["XSETTLE", member.stream, member.group, member.consumer]
    commands: list[Command] = []
    for indexes in alike.values():
        first = settlements[indexes[0]]
        delay: list[Word] = ["DELAY", first.delay_ms] if first.delay_ms else []
        ids = [settlements[index].id for index in indexes]
        additions = [word for addition in first.additions for word in addition.to()]
        how = How.ACK if first.how is How.ACKED else first.how
        command: Command = [*head, how, *delay, "IDS", len(ids), *ids, *additions]
        if first.how is How.ACKED:
            delete: Command = ["XDELEX", member.stream, "ACKED", "IDS", len(ids), *ids]
            commands += [["MULTI"], command, delete, ["EXEC"]]
        else:
            commands.append(command)
    replies = iter((yield commands))
    outcomes: list[Outcome] = [Outcome(done=False)] * len(settlements)
    for indexes in alike.values():
        reply = _settled(settlements[indexes[0]].how, replies)
        if isinstance(reply, Refused):
            if not settlements[indexes[0]].additions or reply.code == "NOGROUP":
                raise reply
            outcomes[indexes[0]] = Outcome(done=False, error=reply)
            continue
        flags, added = reply
        for index, flag in zip(indexes, flags, strict=True):
            outcomes[index] = Outcome(bool(flag), added)
    return outcomes


def _settled(how: How, replies: Iterator[Any]) -> Any:
    """XSETTLE's reply, or its error."""
    if how is not How.ACKED:
        return next(replies)
    try:
        return executed([next(replies) for _ in range(4)])[0]
    except Refused as error:
        return error


def _by_script(member: Member, settlements: Sequence[Settlement]) -> Operation[list[Outcome]]:
    # While a slot moves, a script that names a key which does not exist yet gets TRYAGAIN: in a cluster
    # the delays are named only for what waits longer than an idle time can say. What remains there is
    # removed while claiming; what is parked and not there is found by a sweep.
    timed = not member.able.cluster or any(_waits_long(member, one) for one in settlements)
    keys: list[Word] = list(member.keys) if timed else [member.stream]
    places: dict[str, int] = {}
    words: list[Word] = [*member.who, int(timed)]
    for settlement in settlements:
        words += [settlement.how, settlement.delay_ms, settlement.id, len(settlement.additions)]
        for addition in settlement.additions:
            if addition.stream not in places:
                keys.append(addition.stream)
                places[addition.stream] = len(keys)
            added = addition.words()
            words += [places[addition.stream], len(added), *added]
    replies = yield from SETTLE.call(keys, words)
    return [_outcome(reply) for reply in replies]


def _waits_long(member: Member, settlement: Settlement) -> bool:
    """Whether an idle time cannot say when it is due: see `scripts`, rule 2."""
    parked = settlement.how in (How.SILENT, How.FAIL)
    return parked and settlement.delay_ms > member.claim_after_ms


def _outcome(reply: list[Any]) -> Outcome:
    if reply[0] < 0:
        return Outcome(done=False, error=Refused(reply[1].decode("utf-8", "replace")))
    return Outcome(bool(reply[0]), reply[1:], gone=reply[0] == 2)


def renew(member: Member, ids: Sequence[bytes]) -> Operation[list[bool]]:
    """Renew the leases of these entries; False for each that the member does not own."""
    if not ids:
        return []
    if member.able.verbs:
        replies = yield [
            ["XRENEW", member.stream, member.group, member.consumer, "IDS", len(ids), *ids]
        ]
        return [bool(flag) for flag in accepted(replies[0])]
    flags = yield from RENEW.call([member.stream], [*member.who, *ids])
    return [bool(flag) for flag in flags]


def whereabouts(member: Member, ids: Sequence[bytes]) -> Operation[list[str]]:
    """Of entries that were not owned: who has each now, in words."""
    replies = yield [["XPENDING", member.stream, member.group, one, one, 1] for one in ids]
    return [_whereabouts(accepted(reply)) for reply in replies]


def _whereabouts(rows: list[Any]) -> str:
    if not rows:
        return "nobody has it: another client acknowledged it, or deleted it"
    owner = rows[0][1].decode("utf-8", "replace")
    if owner in ("", PARKED_CONSUMER):
        return "it waits for its next delivery"
    return f"consumer {owner} has it"
