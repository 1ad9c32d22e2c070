"""Entries that were trimmed or deleted before the group read them.

       entries-read         entries-added - length           entries-added
    ────────┼───────────────────────┼───────────────────────────────┼──
     read   │  gone from the stream │   in the stream               │
            └─ never read: lost ────┘

Rule 1. The counters give a lower bound: of what is gone, at most ``entries-read`` had been read.
Rule 2. Each loss is counted once in a group: the hash of its settings says up to where.
"""

from __future__ import annotations

from headwater.groups.member import Member
from headwater.groups.operation import Operation, Refused, accepted, mapping
from headwater.messages import group_settings_key

COUNTED_FIELD = "lost_upto"
"""Order number of the last entry whose loss was counted."""


def unread_lost(member: Member) -> Operation[int]:
    """How many more entries are gone that the group never read; 0 where a server does not count."""
    key = group_settings_key(member.stream, member.group)
    stream, groups, counted = yield [
        ["XINFO", "STREAM", member.stream],
        ["XINFO", "GROUPS", member.stream],
        ["HGET", key, COUNTED_FIELD],
    ]
    if isinstance(stream, Refused) or isinstance(groups, Refused) or isinstance(counted, Refused):
        return 0
    facts = mapping(stream)
    added, gone = facts[b"entries-added"], facts[b"entries-added"] - facts[b"length"]
    mine = [one for one in map(mapping, groups) if one[b"name"] == member.group.encode()]
    if not mine or mine[0][b"entries-read"] is None:
        return 0
    if counted is None and mine[0][b"last-delivered-id"] == b"0-0":
        known = gone  # a new group: what was gone before it was made is not a loss
    else:
        before = int(counted or 0)
        # A stream that was deleted and created again counts from the beginning.
        known = max(mine[0][b"entries-read"], before if before <= added else 0)
        if gone <= known:
            return 0
    replies = yield [["HSET", key, COUNTED_FIELD, gone]]
    accepted(replies[0])
    return int(gone - known)
