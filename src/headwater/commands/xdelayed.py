"""XDELAYED: the delayed entries of a group (XSETTLE … DELAY)."""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call
from headwater.commands.ids import range_end, range_start
from headwater.commands.xgroup import pending_group
from headwater.common.model import MAX_ID, MIN_ID
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending import NOBODY
from headwater.errors import CommandError

FEW = 4_096
"""Maximum number of delayed entries that are sorted. If there are more, the pending list is scanned in order."""


def xdelayed(call: Call) -> None:
    """XDELAYED key group [start end count] → rows ``[id, milliseconds until due, deliveries]``."""
    arguments, reply = call.arguments, call.reply
    start: tuple[int, int] = MIN_ID
    end: tuple[int, int] = MAX_ID
    count = -1
    if arguments.count > 3:
        if arguments.count != 6:
            raise CommandError(SYNTAX)
        count = max(0, arguments.count_at(5))
        start, end = range_start(arguments, 3), range_end(arguments, 4)
    _, group = pending_group(call)
    rows = _positions(group, start, end, len(group.delayed) if count < 0 else count)
    reply.array(len(rows))
    for at in rows:
        ms, seq = group.pel.id(at)
        reply.array(3)
        reply.id(ms, seq)
        reply.integer(max(0, group.delayed[ms, seq] - call.now_ms))
        reply.integer(group.pel.delivery_count(at))


def _positions(
    group: ConsumerGroup, start: tuple[int, int], end: tuple[int, int], count: int
) -> list[int]:
    """Return the positions in the pending list of the first ``count`` delayed entries of a range, by id."""
    pel, delayed = group.pel, group.delayed
    if len(delayed) <= FEW:
        ids = sorted(one for one in delayed if start <= one <= end)
        return [pel.find(ms, seq) for ms, seq in ids[:count]]
    found: list[int] = []
    at = pel.seek(*start)
    while len(found) < count:
        at = pel.owned_from(at, NOBODY)
        if at < 0 or pel.id(at) > end:
            break
        if pel.id(at) in delayed:
            found.append(at)
        at = pel.after(at)
    return found
