"""Delayed entries: those that wait for their retry."""

from __future__ import annotations

from typing import NamedTuple

from headwater.groups.protocol.operation import Operation, accepted
from headwater.groups.reports.pending import GroupInfo, groups
from headwater.messages.keys import delays_key


class Retry(NamedTuple):
    """A delayed entry."""

    id: str
    due_ms: int
    """Milliseconds until the entry is due; 0 if it is already due."""
    deliveries: int


def retries(stream: str, group: str, *, count: int) -> Operation[list[Retry]]:
    """Return the first ``count`` delayed entries of a group: on Headwater in the order of their ids, on other
    servers in the order of their due times.

    Raises `HeadwaterError` if the stream or the group does not exist.
    """
    (of,) = yield from groups(stream, group)
    if not of.able.verbs:
        return (yield from _from_sorted_set(of, count))
    replies = yield [["XDELAYED", stream, group, "-", "+", count]]
    return [Retry(row[0].decode(), int(row[1]), int(row[2])) for row in accepted(replies[0])]


def _from_sorted_set(of: GroupInfo, count: int) -> Operation[list[Retry]]:
    replies = yield [["ZRANGE", delays_key(of.stream, of.name), 0, count - 1, "WITHSCORES"]]
    flat = accepted(replies[0])
    # RESP3 has pairs, RESP2 a flat list.
    pairs = (
        flat
        if flat and isinstance(flat[0], list)
        else list(zip(flat[::2], flat[1::2], strict=True))
    )
    if not pairs:
        return []
    replies = yield [["XPENDING", of.stream, of.name, one, one, 1] for one, _due in pairs]
    found = []
    for (one, due), reply in zip(pairs, replies, strict=True):
        rows = accepted(reply)
        if rows:  # the set may have an entry that was settled by another client
            left = max(0, int(float(due)) - of.now_ms)
            found.append(Retry(one.decode(), left, int(rows[0][3])))
    return found
