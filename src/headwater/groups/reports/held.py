"""Which entries of an ordered group wait for an earlier entry of their key, as its reader says.

Rule. Only the reader knows the keys. It writes the string ``{stream}:hw:held:<group>`` every two seconds while entries
      wait; the string expires soon after it has stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation, Refused
from headwater.messages import held_key

KEPT_MS = 10_000

MOST_KEYS = 100
"""How many keys are written, those with the oldest first entries."""

MOST_WAITING = 20
"""How many waiting entries of a key are written."""


class HeldKey(NamedTuple):
    """A key of which entries wait."""

    key: str
    first: str
    """The entry that they wait for: it runs, or waits for its retry."""
    waiting: Sequence[str]
    """The first of those that wait."""
    total: int
    """How many wait."""


def write_held(member: Member, held: Sequence[HeldKey]) -> Operation[None]:
    """Write which entries wait. A refusal by the server is ignored: `explain` then does not know."""
    key = held_key(member.stream, member.group)
    if held:
        yield [["SET", key, json.dumps(held), "PX", KEPT_MS]]
    else:
        yield [["DEL", key]]


def read_held(stream: str, group: str) -> Operation[list[HeldKey]]:
    """Return which entries wait, as the reader last wrote; an empty list if none does, or nothing is known."""
    replies = yield [["GET", held_key(stream, group)]]
    if isinstance(replies[0], Refused) or replies[0] is None:
        return []
    try:
        return [
            HeldKey(str(key), str(first), [*map(str, waiting)], int(count))
            for key, first, waiting, count in json.loads(replies[0])
        ]
    except (ValueError, TypeError):
        return []  # written by another program
