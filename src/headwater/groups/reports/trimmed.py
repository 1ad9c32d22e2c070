"""Counts the entries that were trimmed or deleted before the group read them.

       entries-read         entries-added - length           entries-added
    ────────┼───────────────────────┼───────────────────────────────┼──
     read   │  gone from the stream │   in the stream               │
            └─ never read: lost ────┘

Rule 1. The count is a lower bound: at most ``entries-read`` of the entries that are gone had been read.
Rule 2. A group counts each loss once: the hash of its settings has the number of the last one that was counted.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import (
    Operation,
    Refused,
    accepted,
    group_row,
    mapping,
    whole_number,
)
from headwater.messages.keys import group_settings_key

COUNTED_FIELD = "lost_upto"
"""Field with the number of the last entry whose loss was counted."""


class Unread(NamedTuple):
    """The entries that a group has lost, as the counters of its stream show them."""

    gone: int
    """Number of entries that are gone from the stream."""
    known: int
    """Maximum number of the gone entries that the group had read, or has already counted as lost."""
    new: bool = False
    """True if the group has neither read nor counted anything yet, so that all losses precede the group."""


def unread_lost(member: Member) -> Operation[int]:
    """Return the number of newly lost entries, which are gone and were never read; 0 if the server does not
    count them."""
    found = yield from _counters(member.stream, member.group)
    if found is None or (found.gone <= found.known and not found.new):
        return 0
    key = group_settings_key(member.stream, member.group)
    replies = yield [["HSET", key, COUNTED_FIELD, found.gone]]
    accepted(replies[0])
    return found.gone - found.known


def never_read(stream: str, group: str) -> Operation[int | None]:
    """Return the minimum number of entries that are gone and were never read, without those that the group's workers
    have reported. Return None if the server does not count them. This changes nothing."""
    found = yield from _counters(stream, group)
    return None if found is None else max(0, found.gone - found.known)


def _counters(stream: str, group: str) -> Operation[Unread | None]:
    key = group_settings_key(stream, group)
    about, groups, counted = yield [
        ["XINFO", "STREAM", stream],
        ["XINFO", "GROUPS", stream],
        ["HGET", key, COUNTED_FIELD],
    ]
    if isinstance(about, Refused) or isinstance(counted, Refused):
        return None
    facts = mapping(about)
    added, gone = facts[b"entries-added"], facts[b"entries-added"] - facts[b"length"]
    mine = group_row(groups, group)
    if mine is None or mine[b"entries-read"] is None:
        return None
    if counted is None and mine[b"last-delivered-id"] == b"0-0":
        return Unread(gone, gone, new=True)
    before = whole_number(counted) or 0
    # The counters of a stream that was deleted and created again begin at 0.
    return Unread(gone, max(mine[b"entries-read"], before if before <= added else 0))
