"""XPENDING, and the rows of pending entries in XINFO STREAM FULL.

    row of a group      id, consumer, delivery time, delivery count
    row of a consumer   id, delivery time, delivery count

Rule 1. XINFO STREAM FULL walks the pending list of a group only once, for all its consumers:
        `positions_by_owner` collects the positions of each consumer's records, up to the requested
        count. A walk per consumer would visit a million entries a thousand times for a thousand consumers.

Source: Redis's command pages and t_stream.c (xpendingCommand, xinfoReplyWithStreamInfo).
"""

from __future__ import annotations

from array import array

from headwater.commands.call import SYNTAX, Call
from headwater.commands.ids import range_end, range_start
from headwater.commands.times import WallOffset
from headwater.commands.xgroup import pending_group
from headwater.engine.groups.consumer import GroupConsumer
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending import NOBODY
from headwater.errors import CommandError
from headwater.resp.replies import ReplyWriter

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import push_word, word_at

# --- XPENDING -----------------------------------------------------------------------------------


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
    count = arguments.count_at(index + 2)
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
    """Return the positions of at most ``count`` records from ``start`` to ``end`` that were delivered at or before the
    steady time ``delivered_by`` (None: at any time) or have no owner. ``name`` selects one consumer; None all."""
    pel = group.pel
    found: list[int] = []
    consumer: GroupConsumer | None = None
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


# --- XINFO STREAM FULL --------------------------------------------------------------------------


def write_group_rows(
    reply: ReplyWriter, group: ConsumerGroup, count: int, wall: WallOffset
) -> None:
    """Write the first ``count`` (-1: all) pending entries of a group. An entry without an owner has an empty
    consumer name and the time 0."""
    pel = group.pel
    total = len(pel)
    if 0 <= count < total:
        total = count
    reply.array(total)
    owner, name = NOBODY, b""
    at = pel.block_start(0)
    for _ in range(total):
        if pel.owner(at) != owner:
            owner = pel.owner(at)
            name = b"" if owner == NOBODY else group.by_cid[owner].name
        reply.array(4)
        reply.id(pel.ms(at), pel.seq(at))
        reply.bulk(name)
        reply.integer(0 if owner == NOBODY else wall.wall_ms(pel.time(at)))
        reply.integer(pel.delivery_count(at))
        at = pel.after(at)


def write_consumer_rows(
    reply: ReplyWriter, group: ConsumerGroup, positions: array[int] | None, wall: WallOffset
) -> None:
    """Write a consumer's pending entries: those at ``positions`` in the group's list; none if it is None."""
    pel = group.pel
    if positions is None:
        reply.array(0)
        return
    total = len(positions)
    reply.array(total)
    for number in range(total):
        at = word_at(positions, number)
        reply.array(3)
        reply.id(pel.ms(at), pel.seq(at))
        reply.integer(wall.wall_ms(pel.time(at)))
        reply.integer(pel.delivery_count(at))


def positions_by_owner(group: ConsumerGroup, count: int) -> dict[int, array[int]]:
    """Return the positions of the first ``count`` (-1: all) pending entries of each consumer, by its cid."""
    pel, found = group.pel, dict[int, "array[int]"]()
    waiting = 0  # consumers whose records are not all found yet
    for consumer in group.by_cid.values():
        waiting += consumer.pending > 0
    at = pel.block_start(0)
    while at >= 0 and waiting and count:
        owner = pel.owner(at)
        block = pel.block_at(at)
        same = pel.same_owner(at, block.end - pel.number_in_block(at))
        if owner != NOBODY:
            positions = found.get(owner)
            if positions is None:
                positions = found[owner] = array("Q")
            most = group.by_cid[owner].pending
            if 0 <= count < most:
                most = count
            room = most - len(positions)
            for number in range(min(same, room)):
                push_word(positions, at + number)
            if 0 < room <= same:
                waiting -= 1
        at = pel.after(at + same - 1)
    return found
