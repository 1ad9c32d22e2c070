"""Counts the entries of a group that expired because no worker started them in time.

Rule. A worker that settles expired entries counts them every two seconds in the hash ``{stream}:hw:expired:<group>``:
      ``dropped``, ``dead``, and ``since``, the time of the first one. The hash expires an hour after the last one.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation, Refused, server_ms, whole_number
from headwater.messages.keys import expired_key

KEPT_MS = 3_600_000


class ExpiredEntries(NamedTuple):
    """Numbers of expired entries that were dropped or became dead letters since ``since_ms``, server time."""

    dropped: int = 0
    dead: int = 0
    since_ms: int = 0


def note_expired(member: Member, *, dropped: int, dead: int) -> Operation[None]:
    """Count entries that expired. A refusal by the server is ignored; `explain` then does not know of them."""
    key = expired_key(member.stream, member.group)
    replies = yield [["TIME"]]
    since = 0 if isinstance(replies[0], Refused) else server_ms(replies[0])
    yield [
        ["HSETNX", key, "since", since],
        ["HINCRBY", key, "dropped", dropped],
        ["HINCRBY", key, "dead", dead],
        ["PEXPIRE", key, KEPT_MS],
    ]


def read_expired(stream: str, group: str) -> Operation[ExpiredEntries]:
    """Return the number of entries that expired recently."""
    replies = yield [["HMGET", expired_key(stream, group), "dropped", "dead", "since"]]
    if isinstance(replies[0], Refused):
        return ExpiredEntries()
    return ExpiredEntries(*(whole_number(one) or 0 for one in replies[0]))
