"""XPENDING: what is pending, and whose it is.

Source: Redis's command page and t_stream.c (xpendingCommand).
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call
from headwater.commands.groups import pending_group
from headwater.commands.ids import range_end, range_start
from headwater.engine.group import Consumer, ConsumerGroup
from headwater.errors import CommandError


def xpending(call: Call) -> None:
    """XPENDING key group → summary; XPENDING key group [IDLE ms] start end count [consumer] → rows
    ``[id, consumer, idle ms, deliveries]``."""
    arguments = call.arguments
    if arguments.count == 3:
        _, group = pending_group(call)
        _summary(call, group)
        return
    if not 6 <= arguments.count <= 9:
        raise CommandError(SYNTAX)
    min_idle, index = 0, 3
    if arguments.is_word(3, b"IDLE"):
        min_idle = arguments.integer(4)
        if arguments.count < 8:
            raise CommandError(SYNTAX)
        index = 5
    count = arguments.integer(index + 2)
    start, end = range_start(arguments, index), range_end(arguments, index + 1)
    name = arguments.bytes(index + 3) if index + 3 < arguments.count else None
    _, group = pending_group(call)
    delivered_by = max(-1, call.now_ms - min_idle) if min_idle > 0 else None
    rows = _rows(group, start, end, count, name, delivered_by)
    call.reply.array(len(rows))
    for at in rows:
        _write_row(call, group, at)


def _summary(call: Call, group: ConsumerGroup) -> None:
    reply, pel = call.reply, group.pel
    reply.array(4)
    reply.integer(pel.length)
    if not pel.length:
        reply.nil()
        reply.nil()
        reply.nil_array()
        return
    for entry_id in (pel.first(), pel.last()):
        reply.id(entry_id[0], entry_id[1])
    owners = [consumer for consumer in group.sorted_consumers() if consumer.pending]
    reply.array(len(owners))
    for consumer in owners:
        reply.array(2)
        reply.bulk(consumer.name)
        reply.bulk(b"%d" % consumer.pending)


def _rows(
    group: ConsumerGroup,
    start: tuple[int, int],
    end: tuple[int, int],
    count: int,
    name: bytes | None,
    delivered_by: int | None,
) -> list[int]:
    """Positions of the records from ``start`` to ``end`` that were delivered by ``delivered_by``
    (steady ms, None: at any time) or are unowned, of one consumer or of all."""
    pel = group.pel
    found: list[int] = []
    consumer: Consumer | None = None
    if name is not None:
        consumer = group.consumers.get(name)
        count = 0 if consumer is None else min(count, consumer.pending)
    at = pel.seek(start[0], start[1])
    while len(found) < count:
        if consumer is not None:
            at = pel.owned_from(at, consumer.cid)
        elif delivered_by is not None:
            at = pel.delivered_from(at, delivered_by)
        if at < 0 or pel.id(at) > end:
            break
        if delivered_by is None or not pel.owner(at) or pel.time(at) <= delivered_by:
            found.append(at)
        at = pel.after(at)
    return found


def _write_row(call: Call, group: ConsumerGroup, at: int) -> None:
    reply, pel = call.reply, group.pel
    owner = group.consumer_of(at)
    reply.array(4)
    reply.id(pel.ms(at), pel.seq(at))
    if owner is None:
        reply.bulk(b"")
        reply.integer(-1)
    else:
        reply.bulk(owner.name)
        idle = call.now_ms - pel.time(at)
        reply.integer(max(0, idle))
    reply.integer(pel.delivery_count(at))
