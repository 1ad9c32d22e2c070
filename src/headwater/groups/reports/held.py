"""Reports the entries of an ordered group that wait for an earlier entry of their key, as its reader wrote them.

Rule. Only the reader knows the keys. It writes the string ``{stream}:hw:held:<group>`` every two seconds while entries
      wait. The string expires soon after the reader has stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation, Refused
from headwater.messages.keys import held_key

KEPT_MS = 10_000

MOST_KEYS = 100
"""Maximum number of keys that are written. Keys with the oldest first entries are written."""

MOST_WAITING = 20
"""Maximum number of waiting entries that are written for each key."""


class HeldKey(NamedTuple):
    """A key whose entries wait."""

    key: str
    first: str
    """Id of the entry for which the others wait. It runs, or waits for its retry."""
    waiting: Sequence[str]
    """Ids of the first entries that wait, at most `MOST_WAITING`."""
    total: int
    """Number of entries that wait."""


def write_held(member: Member, held: Sequence[HeldKey]) -> Operation[None]:
    """Write the entries that wait. A refusal by the server is ignored; `explain` then does not know of them."""
    key = held_key(member.stream, member.group)
    if held:
        yield [["SET", key, json.dumps(held), "PX", KEPT_MS]]
    else:
        yield [["DEL", key]]


def read_held(stream: str, group: str) -> Operation[list[HeldKey]]:
    """Return the entries that wait, as the reader last wrote them; an empty list if none waits or nothing is known."""
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
