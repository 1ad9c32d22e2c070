"""Settles entries, which ends their deliveries.

Rule 1. Failures, dead letters and entries that are handed back are owner-checked: a former owner changes nothing.
        A success settles its entry as long as it is pending, regardless of its owner (``any_owner``). The first
        member to finish settles the entry, and the results of later ones are dropped.
Rule 2. A settlement may be sent twice: the second one changes nothing. So a batch whose reply was lost is sent
        again. If it has results, which may be large, the store is first asked whether its entries are pending.
Rule 3. Settlements share commands, but a failure of one does not undo another.
Rule 4. A settlement of several entries with results is one step: if one entry cannot be settled, none is.
        Without results, it settles the entries that can be settled. Results that cannot be added in that step,
        because a cluster has them in another slot or they are too long for Lua, are added before it.
Rule 5. A dead letter that is too long for XSETTLE is also added before it. One that the store refuses because of its
        size is replaced by a shorter one (`shortened`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from itertools import chain, islice
from typing import Any, NamedTuple

from headwater.common.names import bytes_of
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import (
    Command,
    GroupVanished,
    Operation,
    Refused,
    Word,
    accepted,
)
from headwater.groups.protocol.scripts import RENEW, SETTLE
from headwater.messages.keys import PARKED_CONSUMER, Pairs, hash_tag

LUA_WORDS = 7_000
"""Maximum number of words of one XADD in Lua, whose stack has room for 8,000."""

SHARED_WORDS = 50_000
"""Maximum number of words of results that share one XSETTLE. A server accepts 1,048,576 words in one command."""

LOADED_BYTES = 64 * 1024
"""Size of a result, in bytes, at which the script is loaded before it is called."""

SERVER_WORDS = 1024 * 1024
"""Maximum number of words of one command, on every server."""

MOST_WORDS = SERVER_WORDS - 64
"""Maximum number of words of the settlements in one command. The command itself needs the others."""


SIZE_REFUSALS = ("Elements are too large to be stored", "Protocol error: invalid bulk length")
"""Texts of errors of every server: an entry has more than 1 GiB, a value has more than proto-max-bulk-len."""

RENEWED_TOGETHER = 1_000
"""Maximum number of entries that one command renews: in Lua, a few milliseconds of the server's time."""


class How(StrEnum):
    """The ways to end a delivery. Values are arguments of XSETTLE."""

    ACK = "ACK"
    """The entry is acknowledged."""
    ACKDEL = "ACKDEL"
    """The entry is acknowledged and deleted, even if other groups have not handled it."""
    ACKED = "ACKED"
    """The entry is acknowledged, and deleted once every group has acknowledged it (`deleting`)."""
    SILENT = "SILENT"
    """The entry is handed back, and this delivery does not count."""
    FAIL = "FAIL"
    """The entry is delivered again, and this delivery counts."""


FINAL = frozenset({How.ACK, How.ACKDEL, How.ACKED})
"""The ends after which an entry is not delivered again."""


class Addition(NamedTuple):
    """An entry to add to a stream, by itself or in one step with a settlement."""

    stream: str
    fields: Pairs
    maxlen: int | None = None
    """Approximate number of entries to which the stream is trimmed; None for no trimming."""

    def words(self) -> list[Word]:
        """Return XADD's arguments after the key."""
        return [*self.trim(), b"*", *chain.from_iterable(self.fields)]

    def trim(self) -> list[bytes]:
        """Return the trimming option of XADD and XSETTLE; empty for no trimming."""
        return [] if self.maxlen is None else [b"MAXLEN", b"~", b"%d" % self.maxlen]


class Settlement(NamedTuple):
    """The end of the delivery of entry ``id``, and of ``others``. ``delay_ms`` is only for SILENT and FAIL."""

    id: bytes
    how: How
    delay_ms: int = 0
    additions: Sequence[Addition] = ()
    others: Sequence[bytes] = ()
    """More entries that end in the same way: with additions, all of them or none; without additions, each by
    itself. They require an end in `FINAL`."""
    any_owner: bool = False
    """True to settle pending entries of any owner (rule 1). On Headwater, this requires an end in `FINAL`."""
    shorter: Addition | None = None
    """For a dead letter, the addition that replaces a larger one if the store cannot take that."""

    @property
    def ids(self) -> list[bytes]:
        """The ids of all entries of the settlement."""
        return [self.id, *self.others]


def shortened(settlement: Settlement, why: str) -> Settlement:
    """Return the settlement with its shorter addition, and log this. Its entry then stays in the stream."""
    assert settlement.shorter is not None, "only of a dead letter"
    from logging import getLogger  # not for queries of the command line, which never come here

    getLogger("headwater.groups").warning(
        "the dead letter of %s does not fit into %s, so it gets a record without the entry's fields; the entry stays in "
        "its stream, and a replay delivers it again: %s",
        settlement.id.decode(),
        settlement.shorter.stream,
        why,
    )
    return settlement._replace(how=How.ACK, additions=[settlement.shorter], shorter=None)


def size_of(additions: Iterable[Addition]) -> int:
    """Return the size of the added fields in bytes."""
    size = 0
    for one in additions:
        for name, value in one.fields:
            size += len(name) + len(value)
    return size


class SettleOutcome(NamedTuple):
    """The outcome of a settlement. ``done`` is False if an entry could no longer be settled, or if the additions
    failed with ``error``. Then a settlement with additions has changed nothing (but see rule 4)."""

    done: bool
    added: Sequence[bytes] = ()
    error: Refused | None = None
    gone: bool = False
    """True if the entry was to be delivered again, but is gone from the stream and so no longer pending."""
    missed: Sequence[bytes] = ()
    """Entries that were not settled: the member does not own them, or with ``any_owner`` they are not pending, or
    the same is true of another entry of the step."""


_DONE = SettleOutcome(done=True)


def settle(
    member: Member, settlements: Sequence[Settlement], unknown: AbstractSet[bytes] = frozenset()
) -> Operation[list[SettleOutcome]]:
    """Settle, and return one outcome for each settlement, in order. Raises `GroupVanished` if the group is gone.

    ``unknown`` are entries that this member has tried to settle without getting a reply. If none of a settlement's
    entries is pending any more, that attempt counts as successful.
    """
    if not any(s.additions for s in settlements):
        return (yield from _in_one_step(member, settlements))
    if member.able.verbs:  # Redis and Valkey accept two billion words
        settlements = [_fitting(one) for one in settlements]
    doubtful = unknown and [s for s in settlements if s.additions and not unknown.isdisjoint(s.ids)]
    if doubtful:
        return (yield from _unless_settled(member, settlements, doubtful))
    # Keys in other slots cannot be written in the same step. Publish first, for delivery at least once.
    apart = {n: s for n, s in enumerate(settlements) if s.additions and _apart(member, s)}
    refused = (yield from _published(apart)) if apart else {}
    rest = [
        s._replace(additions=()) if n in apart else s
        for n, s in enumerate(settlements)
        if n not in refused
    ]
    settled = iter((yield from _in_one_step(member, rest)))
    outcomes = [refused[n] if n in refused else next(settled) for n in range(len(settlements))]
    large = [
        n
        for n, one in enumerate(outcomes)
        if one.error is not None and is_too_large(settlements[n], one.error)
    ]
    if large:
        shorter = [shortened(settlements[n], str(outcomes[n].error)) for n in large]
        again = yield from settle(member, shorter)
        for n, outcome in zip(large, again, strict=True):
            outcomes[n] = outcome
    return outcomes


def is_too_large(settlement: Settlement, error: Refused) -> bool:
    """Return whether the store has refused the size of an addition for which there is a shorter one."""
    return settlement.shorter is not None and any(text in str(error) for text in SIZE_REFUSALS)


def _fitting(settlement: Settlement) -> Settlement:
    """Return the settlement, with its shorter addition if the other one is too long for one XADD."""
    if settlement.shorter is None:
        return settlement
    words = max(2 + len(one.trim()) + 1 + 2 * len(one.fields) for one in settlement.additions)
    if words <= SERVER_WORDS:
        return settlement
    return shortened(settlement, f"a command has at most {SERVER_WORDS} words, not {words}")


def _unless_settled(
    member: Member, settlements: Sequence[Settlement], doubtful: Sequence[Settlement]
) -> Operation[list[SettleOutcome]]:
    """Find out which of the ``doubtful`` settlements were carried out, and settle the others."""
    ids = [entry_id for one in doubtful for entry_id in one.ids]
    replies = yield [["XPENDING", member.stream, member.group, one, one, 1] for one in ids]
    for reply in replies:
        if isinstance(reply, GroupVanished):
            raise reply
    pending = {one for one, reply in zip(ids, replies, strict=True) if reply}  # or unknown
    settled = [one in doubtful and pending.isdisjoint(one.ids) for one in settlements]
    rest = [one for one, is_settled in zip(settlements, settled, strict=True) if not is_settled]
    outcomes = iter((yield from settle(member, rest)))
    return [_DONE if is_settled else next(outcomes) for is_settled in settled]


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
    """Split settlements into parts that each fit into one command. A settlement that is too long is a part by
    itself."""
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
    """Return an upper bound for the number of words of the settlement in a command."""
    words = 5 + len(settlement.others)
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
    """Return whether adding to ``destination`` and settling can be one step on this server."""
    return not member.able.cluster or _slot_words(member.stream) == _slot_words(destination)


def _slot_words(key: str) -> str:
    return hash_tag(key) or key


def _apart(member: Member, settlement: Settlement) -> bool:
    if settlement.shorter is not None and _words(settlement) > MOST_WORDS:
        return True
    for addition in settlement.additions:
        if not one_step(member, addition.stream):
            return True
        if not member.able.verbs and 2 * len(addition.fields) > LUA_WORDS:
            return True
    return False


def _published(apart: Mapping[int, Settlement]) -> Operation[dict[int, SettleOutcome]]:
    """Add the results of these settlements by XADD. Return the outcomes of those that were refused."""
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
    """Settle by XSETTLE. Settlements of the same kind share one. An XSETTLE with results does everything or
    nothing. If it does nothing, each of its settlements is sent again by itself, so that one failure does not
    affect the others."""
    outcomes = [_DONE] * len(settlements)
    again = yield from _settle_alike(member, settlements, _alike(settlements), outcomes)
    yield from _settle_alike(member, settlements, [[index] for index in again], outcomes)
    return outcomes


def _alike(settlements: Sequence[Settlement]) -> list[list[int]]:
    """Return lists of indexes. The settlements of each list share a command."""
    alike: dict[object, list[int]] = {}
    words = part = 0
    for index, settlement in enumerate(settlements):
        kind: object = (settlement.how, settlement.delay_ms, settlement.any_owner)
        if settlement.additions:
            words += _words(settlement)
            if words > SHARED_WORDS:
                words, part = _words(settlement), part + 1
            kind = (settlement.how, settlement.delay_ms, settlement.any_owner, part)
        alike.setdefault(kind, []).append(index)
    return [*alike.values()]


def _settle_alike(
    member: Member,
    settlements: Sequence[Settlement],
    alike: Sequence[Sequence[int]],
    outcomes: list[SettleOutcome],
) -> Operation[list[int]]:
    """Send one XSETTLE for each list of indexes and fill ``outcomes``. Return the indexes of settlements that
    must be sent again by themselves."""
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
    """Fill the outcomes of the settlements from the reply to one XSETTLE."""
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
    """Return one XSETTLE for settlements of the same kind."""
    first = settlements[0]
    delay: list[Word] = ["DELAY", first.delay_ms] if first.delay_ms else []
    ids = [entry_id for one in settlements for entry_id in one.ids]
    who = [member.stream, member.group, member.consumer]
    how: list[str] = ["ACKDEL", "ACKED"] if first.how is How.ACKED else [first.how]
    if first.any_owner:
        how.append("ANYOWNER")
    return ["XSETTLE", *who, *how, *delay, "IDS", len(ids), *ids, *_additions(settlements)]


def _additions(settlements: Sequence[Settlement]) -> list[Word]:
    """Return XSETTLE's TO clauses. They are bytes, which clients send faster than text and numbers."""
    words: list[Word] = []
    heads: dict[tuple[str, int | None, int], list[bytes]] = {}
    for one in settlements:
        for addition in one.additions:
            kind = (addition.stream, addition.maxlen, len(addition.fields))
            head = heads.get(kind)
            if head is None:
                to = [b"TO", bytes_of(addition.stream), *addition.trim(), b"*"]
                head = heads[kind] = [*to, b"FIELDS", b"%d" % kind[2]]
            words += head
            for pair in addition.fields:
                words += pair
    return words


def _by_script(member: Member, settlements: Sequence[Settlement]) -> Operation[list[SettleOutcome]]:
    try:
        return (yield from _scripted(member, settlements, timed=True))
    except Refused as error:
        if error.code != "TRYAGAIN":
            raise
        refused = error
    # While the slot migrates to another node, a script that names a missing key fails. Scripts that name only
    # the stream work. A sweep finds the entries that are parked without the sorted set of delays.
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
    """Settle in one step. With ``timed``, the script uses the sorted set of delays."""
    keys: list[Word] = list(member.keys) if timed else [member.stream]
    places: dict[str, int] = {}
    words: list[Word] = [*member.who, int(timed)]
    for settlement in settlements:
        ids = settlement.ids
        words += [settlement.how, settlement.delay_ms, int(settlement.any_owner), len(ids), *ids]
        words.append(len(settlement.additions))
        for addition in settlement.additions:
            if addition.stream not in places:
                keys.append(addition.stream)
                places[addition.stream] = len(keys)
            added = addition.words()
            words += [places[addition.stream], len(added), *added]
    large = len(settlements) == 1 and size_of(settlements[0].additions) > LOADED_BYTES
    replies = yield from SETTLE.call(keys, words, large=large)
    return [_outcome(*pair) for pair in zip(settlements, replies, strict=True)]


def _waits_long(member: Member, settlement: Settlement) -> bool:
    """Return whether the delay is too long to be expressed by an idle time; see rule 2 of `scripts`."""
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
    """Renew the leases of these entries. Return for each entry whether the member owns it."""
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


def current_owners(member: Member, ids: Sequence[bytes]) -> Operation[list[str]]:
    """Return a text for the log about the current owner of each of these entries."""
    replies = yield [["XPENDING", member.stream, member.group, one, one, 1] for one in ids]
    return [_current_owner(accepted(reply)) for reply in replies]


def _current_owner(rows: list[Any]) -> str:
    if not rows:
        return (
            "it is not pending: another client acknowledged it, deleted it, or removed its consumer; or "
            "the server lost it in a failover"
        )
    owner = rows[0][1].decode("utf-8", "replace")
    if owner in ("", PARKED_CONSUMER):
        return "it waits for its next delivery"
    return f"consumer {owner} owns it"
