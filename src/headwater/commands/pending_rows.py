"""The rows of XINFO STREAM FULL that show pending entries: one for the group, one for the consumer.

    group       id, consumer, delivery time, delivery count
    consumer    id, delivery time, delivery count

Rule 1. The pending list is walked once for all consumers of a group: `positions_by_owner` collects
        where the records of each stand, up to the count that is asked for. With a walk for each, a
        thousand consumers would walk a million entries a thousand times.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from headwater.commands.wall_time import WallOffset
from headwater.engine.group import ConsumerGroup
from headwater.engine.pending import NOBODY
from headwater.resp.replies import ReplyWriter

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import push_word, word_at


def write_group_rows(
    reply: ReplyWriter, group: ConsumerGroup, count: int, wall: WallOffset
) -> None:
    """The first ``count`` (-1: all) pending entries of a group; the consumer of one that nobody owns
    is empty and its time 0."""
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
    """The pending entries of one consumer, at ``positions`` of the group's list; None for none."""
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
    """Where the first ``count`` (-1: all) pending entries of each consumer stand, by its number."""
    pel, found = group.pel, dict[int, "array[int]"]()
    waiting = 0  # consumers whose records are not all found
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
