"""A member of a consumer group."""

from __future__ import annotations

NEVER = -1
"""``active_time`` of a consumer that has never been given a pending entry."""


class GroupConsumer:
    """A member of a group. ``seen_time`` is the time of its last command, ``active_time`` the time at which it
    was last given a pending entry, or `NEVER`."""

    def __init__(self, cid: int, name: bytes, seen_time: int) -> None:
        self.cid = cid
        self.name = name
        self.seen_time = seen_time
        self.active_time = NEVER
        self.pending = 0
