"""A member of a consumer group, and how a group comes to be: created, agreed upon, made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headwater.errors import DeclarationError
from headwater.groups.capabilities import Capabilities
from headwater.groups.operation import Command, Operation, Refused, Word, accepted, mapping
from headwater.groups.scripts import RETIRE
from headwater.messages import due_key, group_settings_key
from headwater.model import MIN_ID, StreamID

CLAIM_AFTER_FIELD = "claim_after_ms"

MARK_FIELD = "made"
"""Changes whenever a worker makes the group again."""


@dataclass(frozen=True)
class Member:
    """Who acts: one consumer of one group of one stream, on a server of known capabilities."""

    stream: str
    group: str
    consumer: str
    claim_after_ms: int
    able: Capabilities

    @cached_property
    def keys(self) -> list[str]:
        """The keys that the scripts of a group touch."""
        return [self.stream, due_key(self.stream, self.group)]

    @cached_property
    def who(self) -> list[str | int]:
        """How the scripts of a group begin their arguments."""
        return [self.group, self.consumer, self.claim_after_ms]


def join(member: Member, *, position: StreamID | str = MIN_ID) -> Operation[bytes | None]:
    """Create the stream and the group where they are missing, and announce ``claim_after``.

    A new group begins behind ``position``: with the first entry that the stream holds, if nothing
    else is asked for; ``$`` is the last id there is. All workers of a group must claim
    after the same time, or one takes what another still holds by its own rule; `DeclarationError`
    when the group has another value. Returns the group's mark: see `rejoin`.
    """
    replies = yield [_create(member, position), *_announce(member)]
    _created(replies[0])
    _agreed(member, replies[2])
    return _mark(replies[3])


def rejoin(
    member: Member, *, unsettled: Sequence[tuple[bytes, int]], seen: bytes | None, mark: str
) -> Operation[tuple[StreamID, set[bytes]]]:
    """Make a vanished group again and register in it what this member has not settled.

    ``unsettled`` are ids with their counts, ``seen`` the greatest id this member was ever given.
    The group begins just below the smallest unsettled id; with none, behind what was seen; and at
    the beginning, when the stream holds nothing so late (it was made anew). The others learn of it
    by ``mark``, a new word of the caller's. Returns that position and the ids that are registered.
    """
    replies = yield [["XINFO", "STREAM", member.stream]]
    last = MIN_ID
    if not isinstance(replies[0], Refused):
        last = StreamID.parse(mapping(replies[0])[b"last-generated-id"])
    position = MIN_ID
    if unsettled:
        position = _before(min(StreamID.parse(one[0]) for one in unsettled))
    elif seen is not None:
        position = StreamID.parse(seen)
    if position > last:
        position = MIN_ID
    # The mark goes first: should this member die here, the others look needlessly, which is no harm.
    replies = yield [
        ["HSET", _settings(member), MARK_FIELD, mark],
        _create(member, position),
        *_announce(member),
    ]
    accepted(replies[0])
    _created(replies[1])
    return position, (yield from _register(member, unsettled))


def look_again(
    member: Member, *, unsettled: Sequence[tuple[bytes, int]], mark: bytes | None
) -> Operation[tuple[bytes | None, set[bytes]]]:
    """Whether another member made the group again, seen by a mark other than ``mark``; then what
    this member has not settled is registered as in `rejoin`. The mark now, and those ids."""
    replies = yield [["HGET", _settings(member), MARK_FIELD]]
    found: bytes | None = accepted(replies[0])
    if found == mark:
        return mark, set()
    return found, (yield from _register(member, unsettled))


def _register(member: Member, unsettled: Sequence[tuple[bytes, int]]) -> Operation[set[bytes]]:
    """Own these ids with these counts where nobody else does; the ids that succeeded.

    XCLAIM FORCE passes over an entry that is gone, and over one that another owns and keeps alive.
    """
    head: list[Word] = ["XCLAIM", member.stream, member.group, member.consumer]
    commands: list[Command] = [
        [*head, member.claim_after_ms, one[0], "FORCE", "JUSTID", "RETRYCOUNT", one[1]]
        for one in unsettled
    ]
    replies = (yield commands) if commands else []
    return {entry_id for reply in replies for entry_id in accepted(reply)}


def _create(member: Member, position: StreamID | str) -> Command:
    return ["XGROUP", "CREATE", member.stream, member.group, str(position), "MKSTREAM"]


def _created(reply: object) -> None:
    if not (isinstance(reply, Refused) and reply.code == "BUSYGROUP"):
        accepted(reply)


def _settings(member: Member) -> str:
    return group_settings_key(member.stream, member.group)


def _announce(member: Member) -> list[Command]:
    key = _settings(member)
    return [
        ["HSETNX", key, CLAIM_AFTER_FIELD, member.claim_after_ms],
        ["HGET", key, CLAIM_AFTER_FIELD],
        ["HGET", key, MARK_FIELD],
    ]


def _mark(reply: Any) -> bytes | None:
    found: bytes | None = accepted(reply)
    return found


def _agreed(member: Member, announced: object) -> None:
    value = accepted(announced)
    if int(value) != member.claim_after_ms:
        key = _settings(member)
        raise DeclarationError(
            f"group {member.group!r} of stream {member.stream!r} claims after {int(value)} ms, this "
            f"consumer declares {member.claim_after_ms} ms. All workers of a group must agree: use "
            f"that value, or stop them all and send HDEL {key} {CLAIM_AFTER_FIELD}."
        )


def _before(id: StreamID) -> StreamID:
    """The greatest id below this one."""
    if id.seq:
        return StreamID(id.ms, id.seq - 1)
    return StreamID(id.ms - 1, 2**64 - 1) if id.ms else MIN_ID


def retire(member: Member) -> Operation[bool]:
    """Remove the consumer if it owns nothing. False when it still does."""
    if member.able.verbs:
        replies = yield [["XRETIRE", member.stream, member.group, member.consumer]]
        return bool(accepted(replies[0]))
    done = yield from RETIRE.call([member.stream], [member.group, member.consumer])
    return bool(done)
