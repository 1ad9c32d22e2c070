"""Counts entries that were claimed from a worker which still ran them: their lease was too short.

Rule 1. The worker that loses the entry counts, because it alone knows that it was alive.
Rule 2. The hash ``{stream}:hw:early:<group>``, id → how often, is gone an hour after the last count. A server that
        refuses it loses only the count.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Command, Operation, Refused, mapping
from headwater.messages import early_claims_key

KEPT_MS = 3_600_000

MOST = 1_000
"""How many entries the hash has at most. A larger one begins again."""


def note_early(member: Member, ids: Sequence[bytes]) -> Operation[None]:
    """Count for each entry one claim too early."""
    key = early_claims_key(member.stream, member.group)
    replies = yield [["HLEN", key]]
    if isinstance(replies[0], Refused):
        return
    if replies[0] + len(ids) > MOST:
        yield [["DEL", key]]
    counts: list[Command] = [["HINCRBY", key, one, 1] for one in ids[:MOST]]
    yield [*counts, ["PEXPIRE", key, KEPT_MS]]


def early_claims(stream: str, group: str) -> Operation[dict[str, int]]:
    """Return how often each entry was claimed too early in the last hour."""
    replies = yield [["HGETALL", early_claims_key(stream, group)]]
    if isinstance(replies[0], Refused):
        return {}
    return {one.decode(): int(count) for one, count in mapping(replies[0]).items()}
