"""XLAG: the exact number of entries that a group has not read, and the state of its pending entries.

The ``lag`` of XINFO is an estimate and can become nil when entries are deleted. XLAG counts ``unread`` from
the entry counts of blocks, at a cost that does not depend on deletions.
"""

from __future__ import annotations

from headwater.commands.call import NO_SUCH_KEY, Call, shown
from headwater.commands.ids import GREATEST
from headwater.common.model import id_after
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending import NOWHERE
from headwater.errors import CommandError


def xlag(call: Call) -> None:
    """XLAG key [group …] → a map of groups, each a map: ``unread``, ``unread-age-ms``, ``pending``,
    ``released``, ``delayed``, ``oldest-pending-ms``, ``oldest-pending-consumer``, ``next-due-ms``.
    A value that does not exist is nil. Without a group, all groups are shown, sorted by name."""
    arguments = call.arguments
    key = arguments.bytes(1)
    stream = call.read_stream(key)
    if stream is None:
        raise CommandError(NO_SUCH_KEY)
    groups = stream.sorted_groups()
    if arguments.count > 2:
        names = dict.fromkeys(arguments.values(2))
        for name in names:
            if name not in stream.groups:
                raise CommandError(
                    f"NOGROUP No such key '{shown(key)}' or consumer group '{shown(name)}'"
                )
        groups = [stream.groups[name] for name in names]
    call.reply.value(
        {
            group.name: _unread(group, call.wall_ms()) | _pending(group, call.now_ms)
            for group in groups
        }
    )


def _unread(group: ConsumerGroup, wall_ms: int) -> dict[str, object]:
    """Return the number of entries after the last delivered one, and the age of the oldest one, computed from its
    id."""
    log, first = group.stream.log, None
    unread = 0
    if group.last_id < group.stream.last_id:
        start = id_after(*group.last_id)
        unread = log.count_range(start, GREATEST)
        first = log.nth(start, [0])[0] if unread else None
    age_ms = None if first is None else _age(first[0], wall_ms)
    return {"unread": unread, "unread-age-ms": age_ms}


def _pending(group: ConsumerGroup, now_ms: int) -> dict[str, object]:
    """Return the numbers of pending, released and delayed entries, the age and owner of the oldest owned entry, and the
    time until the next delayed entry is due."""
    oldest = next(group.order.walk(), NOWHERE)
    owner = None if oldest == NOWHERE else group.consumer_of(oldest)
    due = group.next_due()
    return {
        "pending": len(group.pel),
        "released": len(group.released),
        "delayed": len(group.delayed),
        "oldest-pending-ms": None if owner is None else _age(group.pel.time(oldest), now_ms),
        "oldest-pending-consumer": None if owner is None else owner.name,
        "next-due-ms": None if due is None else max(0, due - now_ms),
    }


def _age(time_ms: int, now_ms: int) -> int:
    """Return the age of a time in milliseconds; 0 if it is in the future, as after the clock was set back."""
    return max(0, now_ms - time_ms)
