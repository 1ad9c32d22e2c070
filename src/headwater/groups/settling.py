"""Settling: how a delivery ends. Nothing changes that the member does not own any more.

Rule 1. A settlement is owner-checked, and with it what it adds: a former owner publishes nothing.
Rule 2. Sent twice it does no harm: the first one ended the ownership that the second would need. So
        a batch whose reply was lost may be sent again.
Rule 3. Settlements share commands, but one that fails undoes no other.
Rule 4. A settlement of several entries that adds something is one step: if one of them is not owned,
        nothing happens to any. One that adds nothing ends those that are owned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import Any, NamedTuple

from headwater.groups.member import Member
from headwater.groups.operation import Command, Operation, Refused, Word, accepted
from headwater.groups.scripts import RENEW, SETTLE
from headwater.messages import PARKED_CONSUMER, Pairs, hash_tag

LUA_WORDS = 7_000
"""Most words of one XADD inside Lua, whose stack holds 8,000."""

SHARED_WORDS = 50_000
"""Most words of results that share one XSETTLE; a server takes 1,048,576 of one command."""


SERVER_WORDS = 1024 * 1024
"""Most words of one command, on every server."""

MOST_WORDS = SERVER_WORDS - 64
"""Most words of the settlements in one command, which has some of its own."""


RENEWED_TOGETHER = 1_000
"""Entries renewed by one command: a few milliseconds of the server's time at most, in Lua."""


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


FINAL = frozenset({How.ACK, How.ACKDEL, How.ACKED})
"""The ends after which an entry does not come again."""


class Addition(NamedTuple):
    """An entry to be added in one step with a settlement."""

    stream: str
    fields: Pairs
    maxlen: int | None = None
    """Trim the stream to about so many entries."""

    def words(self) -> list[Word]:
        """XADD's arguments after the key."""
        return [*self._trim(), "*", *chain.from_iterable(self.fields)]

    def to(self) -> list[Word]:
        """XSETTLE's TO clause."""
        head = ["TO", self.stream, *self._trim(), "*", "FIELDS", len(self.fields)]
        return [*head, *chain.from_iterable(self.fields)]

    def _trim(self) -> list[Word]:
        return [] if self.maxlen is None else ["MAXLEN", "~", self.maxlen]


class Settlement(NamedTuple):
    """How the delivery of entry ``id`` ends, and of ``others``. ``delay_ms`` only with SILENT and FAIL."""

    id: bytes
    how: How
    delay_ms: int = 0
    additions: Sequence[Addition] = ()
    others: Sequence[bytes] = ()
    """Entries that end alike: with additions all of them or none, without them each by itself. Only of
    an end in `FINAL`."""

    @property
    def ids(self) -> list[bytes]:
        """All entries that it ends."""
        return [self.id, *self.others]


def size_of(additions: Iterable[Addition]) -> int:
    """Bytes of the fields that are added."""
    size = 0
    for one in additions:
        for name, value in one.fields:
            size += len(name) + len(value)
    return size


class SettleOutcome(NamedTuple):
    """What became of a settlement. ``done`` is False when an entry was not owned any more, or
    when ``error`` says why the additions could not be made; then nothing was changed."""

    done: bool
    added: Sequence[bytes] = ()
    error: Refused | None = None
    gone: bool = False
    """It was to come again, but its entry is gone from the stream; so it is not pending any more."""
    missed: Sequence[bytes] = ()
    """Entries that are not settled because they were not owned, or one that ends with them was not."""


_DONE = SettleOutcome(done=True)


def settle(member: Member, settlements: Sequence[Settlement]) -> Operation[list[SettleOutcome]]:
    """Carry out settlements; one outcome each, in order. `GroupVanished` when the group is gone."""
    if not any(s.additions for s in settlements):
        return (yield from _in_one_step(member, settlements))
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


def _in_one_step(
    member: Member, settlements: Sequence[Settlement]
) -> Operation[list[SettleOutcome]]:
    by = _by_verbs if member.able.verbs else _by_script
    outcomes: list[SettleOutcome] = []
    for part in _parts(settlements):
        if _words(part[0]) > MOST_WORDS:
            outcomes.append(SettleOutcome(done=False, error=_too_many_words(part[0])))
        else:
            outcomes += yield from by(member, part)
    return outcomes


def _parts(settlements: Sequence[Settlement]) -> Iterator[Sequence[Settlement]]:
    """Runs of settlements that fit into one command; what fits into none is alone."""
    first = words = 0
    for n, settlement in enumerate(settlements):
        more = _words(settlement)
        if n > first and words + more > MOST_WORDS:
            yield settlements[first:n]
            first, words = n, 0
        words += more
    if first < len(settlements):
        yield settlements[first:]


def _words(settlement: Settlement) -> int:
    """At least as many words as the settlement takes in a command."""
    words = 4 + len(settlement.others)
    for one in settlement.additions:
        words += 10 + 2 * len(one.fields)
    return words


def _too_many_words(settlement: Settlement) -> Refused:
    entries = len(settlement.additions)
    fields = sum(len(one.fields) for one in settlement.additions)
    return Refused(
        f"ERR the results of one message ({entries} with {fields} fields) do not fit into one "
        f"command of {SERVER_WORDS} words. Return fewer results, or a list within one result"
    )


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


def _published(apart: Mapping[int, Settlement]) -> Operation[dict[int, SettleOutcome]]:
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
            refused[n] = SettleOutcome(done=False, error=errors[0])
    return refused


def _by_verbs(member: Member, settlements: Sequence[Settlement]) -> Operation[list[SettleOutcome]]:
    """Those of a kind share an XSETTLE. With results it does everything or nothing: where it did
    nothing, each settlement is sent again by itself, so that one fails no other."""
    outcomes = [_DONE] * len(settlements)
    again = yield from _settle_alike(member, settlements, _alike(settlements), outcomes)
    yield from _settle_alike(member, settlements, [[index] for index in again], outcomes)
    return outcomes


def _alike(settlements: Sequence[Settlement]) -> list[list[int]]:
    """Indexes of the settlements that share a command."""
    alike: dict[object, list[int]] = {}
    words = part = 0
    for index, settlement in enumerate(settlements):
        kind: object = (settlement.how, settlement.delay_ms)
        if settlement.additions:
            words += _words(settlement)
            if words > SHARED_WORDS:
                words, part = _words(settlement), part + 1
            kind = (settlement.how, settlement.delay_ms, part)
        alike.setdefault(kind, []).append(index)
    return [*alike.values()]


def _settle_alike(
    member: Member,
    settlements: Sequence[Settlement],
    alike: Sequence[Sequence[int]],
    outcomes: list[SettleOutcome],
) -> Operation[list[int]]:
    """One XSETTLE for each list of indexes. Fills ``outcomes``; the indexes that must be sent by
    themselves are returned."""
    if not alike:
        return []
    replies = yield [_xsettle(member, [settlements[n] for n in indexes]) for indexes in alike]
    again: list[int] = []
    for indexes, reply in zip(alike, replies, strict=True):
        results = bool(settlements[indexes[0]].additions)
        if isinstance(reply, Refused) and (not results or reply.code == "NOGROUP"):
            raise reply
        if results and len(indexes) > 1 and (isinstance(reply, Refused) or not all(reply[0])):
            again += indexes
        elif isinstance(reply, Refused):
            outcomes[indexes[0]] = SettleOutcome(done=False, error=reply)
        else:
            _fill(settlements, indexes, reply, outcomes)
    return again


def _fill(
    settlements: Sequence[Settlement],
    indexes: Sequence[int],
    reply: Sequence[Any],
    outcomes: list[SettleOutcome],
) -> None:
    """Note what the reply to one XSETTLE says of each settlement."""
    flags, added = iter(reply[0]), iter(reply[1])
    for index in indexes:
        settlement = settlements[index]
        ids = settlement.ids
        settled = list(islice(flags, len(ids)))
        if not all(settled):
            if not settlement.additions:
                ids = [one for one, flag in zip(ids, settled, strict=True) if not flag]
            outcomes[index] = SettleOutcome(done=False, missed=ids)
        elif settlement.additions:
            outcomes[index] = SettleOutcome(True, list(islice(added, len(settlement.additions))))


def _xsettle(member: Member, settlements: Sequence[Settlement]) -> Command:
    """One XSETTLE for settlements of a kind."""
    first = settlements[0]
    delay: list[Word] = ["DELAY", first.delay_ms] if first.delay_ms else []
    ids = [entry_id for one in settlements for entry_id in one.ids]
    additions: list[Word] = []
    for one in settlements:
        for addition in one.additions:
            additions += addition.to()
    who = [member.stream, member.group, member.consumer]
    how = ["ACKDEL", "ACKED"] if first.how is How.ACKED else [first.how]
    return ["XSETTLE", *who, *how, *delay, "IDS", len(ids), *ids, *additions]


def _by_script(member: Member, settlements: Sequence[Settlement]) -> Operation[list[SettleOutcome]]:
    try:
        return (yield from _scripted(member, settlements, timed=True))
    except Refused as error:
        if error.code != "TRYAGAIN":
            raise
        refused = error
    # The slot is on its way to another node, which refuses a script that names a key which does not exist
    # yet. What names the stream alone is settled; without the delays, what is parked is found by a sweep.
    kinds: dict[tuple[bool, bool], list[int]] = {}
    for n, one in enumerate(settlements):
        kinds.setdefault((_waits_long(member, one), bool(one.additions)), []).append(n)
    outcomes = [SettleOutcome(done=False, error=refused)] * len(settlements)
    for (timed, _adds), places in kinds.items():
        try:
            found = yield from _scripted(member, [settlements[n] for n in places], timed=timed)
        except Refused as error:
            if error.code != "TRYAGAIN":
                raise
            continue
        for n, outcome in zip(places, found, strict=True):
            outcomes[n] = outcome
    return outcomes


def _scripted(
    member: Member, settlements: Sequence[Settlement], *, timed: bool
) -> Operation[list[SettleOutcome]]:
    """Settle in one step; ``timed`` names the sorted set of delays too."""
    keys: list[Word] = list(member.keys) if timed else [member.stream]
    places: dict[str, int] = {}
    words: list[Word] = [*member.who, int(timed)]
    for settlement in settlements:
        ids = settlement.ids
        words += [settlement.how, settlement.delay_ms, len(ids), *ids, len(settlement.additions)]
        for addition in settlement.additions:
            if addition.stream not in places:
                keys.append(addition.stream)
                places[addition.stream] = len(keys)
            added = addition.words()
            words += [places[addition.stream], len(added), *added]
    replies = yield from SETTLE.call(keys, words)
    return [_outcome(*pair) for pair in zip(settlements, replies, strict=True)]


def _waits_long(member: Member, settlement: Settlement) -> bool:
    """Whether an idle time cannot say when it is due: see `scripts`, rule 2."""
    parked = settlement.how in (How.SILENT, How.FAIL)
    return parked and settlement.delay_ms > member.claim_after_ms


def _outcome(settlement: Settlement, reply: list[Any]) -> SettleOutcome:
    code = reply[0]
    if code < 0:
        return SettleOutcome(done=False, error=Refused(reply[1].decode("utf-8", "replace")))
    if code == 0:
        return SettleOutcome(done=False, missed=reply[1:] or settlement.ids)
    return SettleOutcome(True, reply[1:], gone=code == 2)


def renew(member: Member, ids: Sequence[bytes]) -> Operation[list[bool]]:
    """Renew the leases of these entries; False for each that the member does not own."""
    kept: list[bool] = []
    for first in range(0, len(ids), RENEWED_TOGETHER):
        part = ids[first : first + RENEWED_TOGETHER]
        if member.able.verbs:
            who = [member.stream, member.group, member.consumer]
            replies = yield [["XRENEW", *who, "IDS", len(part), *part]]
            flags = accepted(replies[0])
        else:
            flags = yield from RENEW.call([member.stream], [*member.who, *part])
        kept += [bool(flag) for flag in flags]
    return kept


def whereabouts(member: Member, ids: Sequence[bytes]) -> Operation[list[str]]:
    """Of entries that were not owned: who has each now, in words."""
    replies = yield [["XPENDING", member.stream, member.group, one, one, 1] for one in ids]
    return [_whereabouts(accepted(reply)) for reply in replies]


def _whereabouts(rows: list[Any]) -> str:
    if not rows:
        return (
            "nobody has it: another client acknowledged it, deleted it, or removed its consumer; or "
            "the server lost it in a failover"
        )
    owner = rows[0][1].decode("utf-8", "replace")
    if owner in ("", PARKED_CONSUMER):
        return "it waits for its next delivery"
    return f"consumer {owner} has it"
