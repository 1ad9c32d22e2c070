"""XLAG: the exact number of entries that a group has not read, and what it has pending.

The ``lag`` of XINFO is an estimate and becomes nil when entries were deleted. XLAG counts ``unread`` from
the entry counts of blocks, at the same cost whatever was deleted.
"""

from __future__ import annotations

from headwater.commands.call import NO_SUCH_KEY, Call, shown
from headwater.commands.ids import GREATEST
from headwater.common.model import id_after
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending import NOWHERE
from headwater.errors import CommandError
from headwater.resp.replies import ReplyWriter


def xlag(call: Call) -> None:
    """XLAG key [group …] → a map of groups, each a map: ``unread``, ``unread-age-ms``, ``pending``,
    ``released``, ``delayed``, ``oldest-pending-ms``, ``oldest-pending-consumer``, ``next-due-ms``.
    A value that does not exist is nil. Without a group: all of them, sorted by name."""
    arguments, reply = call.arguments, call.reply
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
    reply.map(len(groups))
    for group in groups:
        reply.bulk(group.name)
        reply.map(8)
        _write_unread(reply, group, call.wall_ms())
        _write_pending(reply, group, call.now_ms)


def _write_unread(reply: ReplyWriter, group: ConsumerGroup, wall_ms: int) -> None:
    """Write the number of entries after the last one delivered, and the age of the first of them, taken
    from its id."""
    log, first = group.stream.log, None
    unread = 0
    if group.last_id < group.stream.last_id:
        start = id_after(*group.last_id)
        unread = log.count_range(start, GREATEST)
        first = log.nth(start, [0])[0] if unread else None
    reply.bulk(b"unread")
    reply.integer(unread)
    reply.bulk(b"unread-age-ms")
    reply.integer_or_nil(None if first is None else _age(first[0], wall_ms))


def _write_pending(reply: ReplyWriter, group: ConsumerGroup, now_ms: int) -> None:
    """Write the counts of pending, released and delayed entries, the oldest owned entry and the next due
    time."""
    for name, count in (
        (b"pending", len(group.pel)),
        (b"released", len(group.released)),
        (b"delayed", len(group.delayed)),
    ):
        reply.bulk(name)
        reply.integer(count)
    oldest = next(group.order.walk(), NOWHERE)
    owner = None if oldest == NOWHERE else group.consumer_of(oldest)
    reply.bulk(b"oldest-pending-ms")
    reply.integer_or_nil(None if owner is None else _age(group.pel.time(oldest), now_ms))
    reply.bulk(b"oldest-pending-consumer")
    reply.bulk_or_nil(None if owner is None else owner.name)
    due = group.next_due()
    reply.bulk(b"next-due-ms")
    reply.integer_or_nil(None if due is None else max(0, due - now_ms))


def _age(time_ms: int, now_ms: int) -> int:
    """The age of a time; 0 for a time in the future, after the clock was set back."""
    return max(0, now_ms - time_ms)
