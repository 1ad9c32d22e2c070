"""Scheduled messages: stored in a separate stream until they are due, so that no group gets them.

    send(after=) ──XADD──▶ {orders}:hw:later ──▶ group hw: delayed until it is due
                                                      │ XSETTLE … ACKDEL TO orders, one step
                                                      └──▶ orders

Rule 1. An entry stays in the stream of scheduled messages until it is published or cancelled. So if the group is
        deleted and created again at the beginning of the stream, nothing is lost or published twice.
Rule 2. An entry is published and removed in one owner-checked step. Cancelling deletes and acknowledges it,
        also in one step. So a message is published or cancelled, never both.
Rule 3. An entry determines its due time: its id is the time at which it was added, by the clock of the store,
        and its field ``hw.after`` is the number of milliseconds for which it waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headwater.common.model import StreamID
from headwater.errors import HeadwaterError
from headwater.groups.membership.member import Member
from headwater.groups.protocol.capabilities import Capabilities
from headwater.groups.protocol.operation import (
    Operation,
    Refused,
    Word,
    accepted,
    executed,
    refused,
    server_ms,
)
from headwater.groups.protocol.scripts import PUBLISH_DUE
from headwater.groups.protocol.store_errors import Remedy, Step, remedy
from headwater.groups.reading.claiming import Delivered
from headwater.groups.settling.settling import (
    LUA_WORDS,
    Addition,
    How,
    Settlement,
    SettleOutcome,
    settle,
)
from headwater.messages.keys import LATE_FIELD, Pairs, delays_key, later_key

GROUP: Final = "hw"
"""The group of each stream of scheduled messages."""

CLAIM_AFTER_MS: Final = 10_000
"""``claim_after`` of the group, in milliseconds. A worker owns a scheduled message only for one settlement.
If the worker is killed then, the message is late by ``claim_after``."""

READ_ENTRIES: Final = 64
"""Maximum number of entries of a read. Without `publish_by_script`, a read may have up to twice as many entries
as the one before, as long as their content stays within a few megabytes."""

SCRIPT_ENTRIES: Final = 200
"""Maximum number of entries that one call of the script publishes: two milliseconds of the server's time."""

SCRIPT_BYTES: Final = 1024 * 1024
"""Size of the content in bytes at which a call of the script ends."""

REFUSED_MS: Final = 60_000
"""Milliseconds after which a message that its stream has refused is published again."""

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Size of the published fields, in bytes, at which a batch of settlements is complete."""

LATE_MS: Final = 1_000
"""Minimum delay, in milliseconds, of a message that gets ``hw.late``. Its expiry counts from its due time."""

AFTER_FIELD: Final = b"hw.after"
MAXLEN_FIELD: Final = b"hw.maxlen"

LONGEST_DIGITS: Final = 15
"""Maximum number of digits of these fields. With more, another client has added the field, and it is published."""


def deferred(addition: Addition, after_ms: int) -> Addition:
    """Return the entry that is published as ``addition`` after ``after_ms``."""
    if 2 * len(addition.fields) > LUA_WORDS:
        raise HeadwaterError(
            f"a message of {len(addition.fields)} fields for {addition.stream!r} cannot be scheduled: "
            f"after= takes at most {LUA_WORDS // 2}; write it as one field (codec='json')"
        )
    after = (AFTER_FIELD, b"%d" % after_ms)
    if addition.maxlen is None:
        return Addition(later_key(addition.stream), [*addition.fields, after])
    maxlen = (MAXLEN_FIELD, b"%d" % addition.maxlen)
    return Addition(later_key(addition.stream), [*addition.fields, maxlen, after])


def cancel(stream: str, entry_id: str) -> Operation[bool]:
    """Cancel a scheduled message of ``stream``. Return False if it was already published or cancelled."""
    return bool((yield from cancel_each(stream, [entry_id])))


def cancel_each(stream: str, ids: Sequence[str]) -> Operation[list[str]]:
    """Cancel scheduled messages of ``stream``. Return the ids of those that were still scheduled."""
    key = later_key(stream)
    replies = yield [
        ["MULTI"],
        *(["XDEL", key, one] for one in ids),
        ["XACK", key, GROUP, *ids],
        ["EXEC"],
        # For Redis and Valkey, where the due times would otherwise stay until a claim finds them due.
        ["ZREM", delays_key(key, GROUP), *ids],
    ]
    deleted = executed(replies[:-1])
    return [one for one, reply in zip(ids, deleted, strict=False) if accepted(reply)]


# --- publishing what is due -----------------------------------------------------------------------


def in_use(streams: Sequence[str]) -> Operation[list[bool]]:
    """Return for each stream whether a message was ever scheduled for it."""
    keys = [later_key(stream) for stream in streams]
    # Usually none of the keys exists. A cluster refuses this command for keys of several slots.
    if len(keys) > 1 and (yield [["EXISTS", *keys]])[0] == 0:
        return [False] * len(keys)
    replies = yield [["EXISTS", key] for key in keys]
    return [bool(accepted(reply)) for reply in replies]


def publisher_of(stream: str, consumer: str, able: Capabilities) -> Member:
    """Return the member that publishes the scheduled messages of ``stream``."""
    return Member(later_key(stream), GROUP, consumer, CLAIM_AFTER_MS, able)


class Refusal(NamedTuple):
    """A message that its stream refused, with the error. It is tried again after `REFUSED_MS`."""

    id: bytes
    error: Refused


class Handled(NamedTuple):
    """The result of `publish_due`."""

    refused: list[Refusal]
    next_ms: int | None
    """Milliseconds until the first delayed entry is due; None if no entry is delayed."""


def publish_due(member: Member, stream: str, found: Sequence[Delivered]) -> Operation[Handled]:
    """Publish the due entries of ``found``, and delay the others until they are due.

    Raises a temporary error of the store, such as OOM. The member then still owns the entries that were not
    settled.
    """
    now = server_ms((yield [["TIME"]])[0])
    problems: list[Refusal] = []
    decided = [_settlement(stream, one, now) for one in found]
    for settlements in _batches(decided):
        outcomes = yield from settle(member, settlements)
        refusals = _refusals(settlements, outcomes)
        yield from _postpone(member, refusals)
        problems += refusals
    return Handled(problems, min((one.delay_ms for one in decided if one.delay_ms), default=None))


def publish_by_script(member: Member, stream: str) -> Operation[tuple[bool, Handled]]:
    """Publish due entries by a script, and delay new ones. Return whether more may be due now, and the result.

    This is for servers without Headwater's commands. No member owns an entry between two calls, so nothing has to
    be claimed if the process is killed. Raises what `publish_due` raises.
    """
    keys = [*member.keys, stream]
    words: list[Word] = [*member.who, SCRIPT_ENTRIES, SCRIPT_BYTES, LUA_WORDS, LONGEST_DIGITS]
    try:
        more, next_ms, errors = yield from PUBLISH_DUE.call(keys, words)
    except Refused as error:
        if error.code != "TRYAGAIN":
            raise
        return False, Handled(
            [], None
        )  # the slot migrates; entries that a read returns are still published
    refusals = [Refusal(one, refused(text.decode("utf-8", "replace"))) for one, text in errors]
    for one in refusals:
        if remedy(one.error, Step.SETTLE) is not Remedy.FAIL:
            raise one.error
    yield from _postpone(member, refusals)
    return bool(more), Handled(refusals, None if next_ms < 0 else next_ms)


def _postpone(member: Member, refusals: Sequence[Refusal]) -> Operation[None]:
    """Delay the messages that their stream refused."""
    parked = not member.able.verbs  # on such servers the member does not own them
    again = [Settlement(one.id, How.SILENT, REFUSED_MS, any_owner=parked) for one in refusals]
    yield from settle(member, again)


def _settlement(stream: str, one: Delivered, now: int) -> Settlement:
    left = due_ms(one.id, one.fields) - now
    if left > 0:
        return Settlement(one.id, How.SILENT, delay_ms=left)
    pairs = list(zip(one.fields[::2], one.fields[1::2], strict=True))
    _number(pairs, AFTER_FIELD)
    maxlen = _number(pairs, MAXLEN_FIELD)
    if -left >= LATE_MS:
        pairs.append((LATE_FIELD, b"%d" % -left))
    return Settlement(one.id, How.ACKDEL, additions=[Addition(stream, pairs, maxlen)])


def _batches(settlements: Sequence[Settlement]) -> Iterator[list[Settlement]]:
    """Split settlements into batches, because a server closes a connection that sends too much in one go."""
    batch: list[Settlement] = []
    size = 0
    for one in settlements:
        batch.append(one)
        size += sum(len(value) for added in one.additions for _name, value in added.fields)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _refusals(
    settlements: Sequence[Settlement], outcomes: Sequence[SettleOutcome]
) -> list[Refusal]:
    found = []
    for settlement, outcome in zip(settlements, outcomes, strict=True):
        if outcome.error is None:
            continue
        if remedy(outcome.error, Step.SETTLE) is not Remedy.FAIL:
            raise outcome.error
        found.append(Refusal(settlement.id, outcome.error))
    return found


def due_ms(entry_id: bytes, flat: Sequence[bytes]) -> int:
    """Return the due time of an entry in Unix milliseconds: the time of its addition if it has no ``hw.after``."""
    tail = [(flat[-2], flat[-1])] if len(flat) >= 2 else []
    return StreamID.parse(entry_id).ms + (_number(tail, AFTER_FIELD) or 0)


def published(flat: Sequence[bytes]) -> Pairs:
    """Return the fields with which an entry will be published."""
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    _number(pairs, AFTER_FIELD)
    _number(pairs, MAXLEN_FIELD)
    return pairs


def _number(pairs: Pairs, name: bytes) -> int | None:
    """Remove the last field and return its value if it is called ``name`` and has a number; otherwise return None."""
    if not pairs or pairs[-1][0] != name:
        return None
    digits = pairs[-1][1]
    if not digits.isdigit() or len(digits) > LONGEST_DIGITS:
        return None
    pairs.pop()
    return int(digits)
