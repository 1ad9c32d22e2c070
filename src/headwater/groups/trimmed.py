"""Counts the entries that were trimmed or deleted before the group read them.

       entries-read         entries-added - length           entries-added
    ────────┼───────────────────────┼───────────────────────────────┼──
     read   │  gone from the stream │   in the stream               │
            └─ never read: lost ────┘

Rule 1. The count is a lower bound: of the entries that are gone, at most ``entries-read`` had been read.
Rule 2. A group counts each loss once: the hash of its settings has the last one that was counted.
"""

from __future__ import annotations

from headwater.groups.member import Member
from headwater.groups.operation import Operation, Refused, accepted, mapping
from headwater.messages import group_settings_key

COUNTED_FIELD = "lost_upto"
"""Field with the number of the last entry whose loss was counted."""


def unread_lost(member: Member) -> Operation[int]:
    """Return how many more entries are gone that the group never read; 0 if the server does not count
    them."""
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
        known = gone  # a new group: entries that were gone before it are not a loss
    else:
        before = int(counted or 0)
        # The counters of a stream that was deleted and created again begin at 0.
        known = max(mine[0][b"entries-read"], before if before <= added else 0)
        if gone <= known:
            return 0
    replies = yield [["HSET", key, COUNTED_FIELD, gone]]
    accepted(replies[0])
    return int(gone - known)
