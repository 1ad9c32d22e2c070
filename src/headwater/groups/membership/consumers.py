"""Lists the consumers of a group, and removes those that are gone.

Rule 1. A consumer is removed only if it owns no entry, in one step with that check. Removing a consumer with
        pending entries would lose them.
Rule 2. Consumers whose names begin with ``hw.`` are internal and are never removed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

from headwater.common.names import text_of
from headwater.groups.membership.member import CLAIM_AFTER_FIELD, Member, retire
from headwater.groups.protocol.missing_stream import GroupMissing, of_stream
from headwater.groups.protocol.operation import Operation, Refused, mapping, whole_number
from headwater.messages.keys import RESERVED_PREFIX, group_settings_key, reader_key

UNSEEN_MS = 24 * 60 * 60 * 1000
"""Time in milliseconds after which an unseen consumer that owns nothing is removed."""

ACTIVE_MS = 60_000
"""Time in milliseconds after which an unseen consumer is silent, unless the group's ``claim_after`` is shorter.
A worker reads at least every few seconds."""


WORKER_NAME = re.compile(r".+-\d+-[0-9a-f]{8}")
"""Pattern of the consumer names of Headwater's workers: host, pid, and a random word for each start."""


class ConsumerState(StrEnum):
    """The state of a consumer, by the time at which it was last seen."""

    ACTIVE = "active"
    SILENT = "silent"
    """The consumer was not seen for a minute, or for ``claim_after`` if that is shorter: it was probably stopped,
    killed or disconnected. Its entries will be claimed."""
    EXPIRED = "expired"
    """The consumer owns nothing and was not seen for a day, so it can be removed."""
    INTERNAL = "internal"
    """The consumer is used by Headwater itself, such as the owner of delayed entries."""


class ConsumerInfo(NamedTuple):
    """One consumer of a group. ``idle_ms`` are the milliseconds since it last read, claimed or renewed."""

    name: str
    pending: int
    idle_ms: int
    state: ConsumerState


def consumers(
    stream: str, group: str, *, unseen_ms: int = UNSEEN_MS
) -> Operation[list[ConsumerInfo]]:
    """Return the consumers of a group, by name. Raises `HeadwaterError` if the stream or group does not exist."""
    replies = yield [
        ["XINFO", "CONSUMERS", stream, group],
        ["HGET", group_settings_key(stream, group), CLAIM_AFTER_FIELD],
    ]
    reply, announced = replies
    if isinstance(reply, Refused) and reply.code == "NOGROUP":
        raise GroupMissing(
            f"there is no group {group!r} of stream {stream!r}; `headwater groups list {stream}` lists "
            "them"
        )
    silent_ms, claim_after_ms = ACTIVE_MS, whole_number(announced)
    if claim_after_ms is not None:
        silent_ms = min(silent_ms, claim_after_ms)  # then its entries can be claimed
    return _parsed((yield from of_stream(reply, stream)), unseen_ms, silent_ms)


def _parsed(reply: Sequence[Any], unseen_ms: int, silent_ms: int = ACTIVE_MS) -> list[ConsumerInfo]:
    """Return the rows of XINFO CONSUMERS, by name."""
    found = []
    for row in reply:
        about = mapping(row)
        name = text_of(about[b"name"])
        pending, idle = about[b"pending"], max(0, about[b"idle"])
        state = _state(name, pending, idle, unseen_ms, silent_ms)
        found.append(ConsumerInfo(name, pending, idle, state))
    return sorted(found)


def _state(name: str, pending: int, idle_ms: int, unseen_ms: int, silent_ms: int) -> ConsumerState:
    if name.startswith(RESERVED_PREFIX):
        return ConsumerState.INTERNAL
    if not pending and idle_ms >= unseen_ms:
        return ConsumerState.EXPIRED
    return ConsumerState.ACTIVE if idle_ms < silent_ms else ConsumerState.SILENT


def foreign_consumers(member: Member) -> Operation[list[ConsumerInfo]]:
    """Return the consumers of the member's group that are neither Headwater workers nor Spark queries, without
    those that own nothing and were not seen for a day. The list is empty if an ACL rule forbids XINFO."""
    replies = yield [["XINFO", "CONSUMERS", member.stream, member.group]]
    if isinstance(replies[0], Refused):
        return []
    others = [
        one
        for one in _parsed(replies[0], UNSEEN_MS)
        if one.state not in (ConsumerState.INTERNAL, ConsumerState.EXPIRED)
        and not WORKER_NAME.fullmatch(one.name)
    ]
    if not others:
        return []
    # A Spark query holds a lease of its consumer name.
    replies = yield [
        ["EXISTS", reader_key(member.stream, member.group, one.name)] for one in others
    ]
    return [one for one, leased in zip(others, replies, strict=True) if leased == 0]


def reap(
    member: Member, *, unseen_ms: int = UNSEEN_MS, only: Collection[str] | None = None
) -> Operation[list[str]]:
    """Remove other consumers of the member's group that own nothing and were not seen for ``unseen_ms``: all, or
    those in ``only``. Return their names. A removed consumer is created again by its next read."""
    removed = []
    for one in (yield from consumers(member.stream, member.group, unseen_ms=unseen_ms)):
        if one.state != ConsumerState.EXPIRED or one.name == member.consumer:
            continue
        if only is not None and one.name not in only:
            continue
        if (yield from retire(replace(member, consumer=one.name))):
            removed.append(one.name)
    return removed
