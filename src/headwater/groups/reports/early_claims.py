"""Counts entries that were claimed from a worker that still ran them, because their lease was too short.

Rule 1. The worker that loses the entry counts the claim, because only this worker knows that it was alive.
Rule 2. The hash ``{stream}:hw:early:<group>``, id → number of claims, expires an hour after the last count. If the
        server refuses the hash, only the count is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.common.names import text_of
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Command, Operation, Refused, mapping, whole_number
from headwater.messages.keys import early_claims_key

KEPT_MS = 3_600_000

MOST = 1_000
"""Maximum number of entries in the hash. It is deleted before it would have more."""


def note_early(member: Member, ids: Sequence[bytes]) -> Operation[None]:
    """Count one early claim for each entry."""
    key = early_claims_key(member.stream, member.group)
    replies = yield [["HLEN", key]]
    if isinstance(replies[0], Refused):
        return
    if replies[0] + len(ids) > MOST:
        yield [["DEL", key]]
    counts: list[Command] = [["HINCRBY", key, one, 1] for one in ids[:MOST]]
    yield [*counts, ["PEXPIRE", key, KEPT_MS]]


def early_claims(stream: str, group: str) -> Operation[dict[str, int]]:
    """Return entry id → number of early claims; an empty dict if none was counted in the last hour."""
    replies = yield [["HGETALL", early_claims_key(stream, group)]]
    if isinstance(replies[0], Refused):
        return {}
    counts = mapping(replies[0]).items()
    return {text_of(one): whole_number(count) or 0 for one, count in counts}
