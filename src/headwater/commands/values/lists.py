"""Lists: LPUSH, RPUSH, LRANGE, LINDEX, LLEN, LPOP, RPOP, and the blocking BLPOP and BRPOP.

Source: Redis's command pages and t_list.c.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from headwater.commands.call import Call, Wait
from headwater.commands.times import seconds
from headwater.commands.values.typed import changed, prepare, reading, writing
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.events import LIST
from headwater.errors import CommandError

_STRIDE = 64
"""Number of elements in a block of a deque. Indexing a deque skips whole blocks from the nearer end."""

_NO_COUNT = "ERR value is out of range, must be positive"


def lpush(call: Call) -> None:
    """LPUSH key element [element …] → the new length; the last element becomes the first of the list."""
    _push(call, left=True)


def rpush(call: Call) -> None:
    """RPUSH key element [element …] → the new length; the last element becomes the last of the list."""
    _push(call, left=False)


def _push(call: Call, *, left: bool) -> None:
    key, elements = call.arguments.bytes(1), call.arguments.values(2)
    current = writing(call, key, deque)
    length = len(current or ()) + len(elements)
    prepare(call, key, elements)
    call.db.push(key, elements, left=left)
    changed(call, key, LIST, b"lpush" if left else b"rpush", len(elements))
    call.reply.integer(length)


def lpop(call: Call) -> None:
    """LPOP key [count] → the first element, removed; with ``count`` an array of the first ones. Nil if the key
    does not exist."""
    _pop(call, "lpop", left=True)


def rpop(call: Call) -> None:
    """RPOP key [count] → as LPOP, from the end of the list."""
    _pop(call, "rpop", left=False)


def _pop(call: Call, command: str, *, left: bool) -> None:
    arguments, reply = call.arguments, call.reply
    if arguments.count > 3:
        raise CommandError(f"ERR wrong number of arguments for '{command}' command")
    counted = arguments.count == 3
    count = arguments.integer(2, error=_NO_COUNT) if counted else 1
    if count < 0:
        raise CommandError(_NO_COUNT)
    key = arguments.bytes(1)
    current = writing(call, key, deque)
    if current is None:
        if counted:
            reply.nil_array()
        else:
            reply.nil()
        return
    taken = _take(call, key, current, min(count, len(current)), left=left)
    if counted:
        reply.bulks(taken)
    else:
        reply.bulk(taken[0])


def _take(call: Call, key: bytes, current: deque[bytes], count: int, *, left: bool) -> list[bytes]:
    """Remove and return ``count`` elements from one end. The list must have at least ``count``."""
    taken = list(islice(current if left else reversed(current), count))
    if taken:
        call.admit(HEADROOM + len(key))
        call.db.pop(key, count, left=left)
        changed(call, key, LIST, b"lpop" if left else b"rpop", count)
    return taken


def blpop(call: Call) -> Wait | None:
    """BLPOP key [key …] timeout → [key, first element] of the first list that exists; the element is removed. Waits
    up to ``timeout`` seconds for a list, or without limit if ``timeout`` is 0. Nil at the timeout."""
    return _pop_or_wait(call, left=True)


def brpop(call: Call) -> Wait | None:
    """BRPOP key [key …] timeout → as BLPOP, with the last element."""
    return _pop_or_wait(call, left=False)


def _pop_or_wait(call: Call, *, left: bool) -> Wait | None:
    arguments, reply = call.arguments, call.reply
    wait_ms = seconds(arguments, arguments.count - 1, call.now_ms)
    keys = arguments.values(1)[:-1]
    for key in keys:
        current = writing(call, key, deque)
        if current is not None:
            (element,) = _take(call, key, current, 1, left=left)
            reply.bulks([key, element])
            return None
    if not call.may_block:
        reply.nil_array()
        return None
    wait = Wait(keys, wait_ms, arguments.copy())
    wait.for_lists = True
    return wait


def lrange(call: Call) -> None:
    """LRANGE key start stop → the elements from ``start`` to ``stop``, inclusive; negative indexes count
    from the end."""
    arguments = call.arguments
    start, stop = arguments.integer(2), arguments.integer(3)
    current = reading(call, arguments.bytes(1), deque)
    if current is None:
        call.reply.array(0)
        return
    start, stop = places(start, stop, len(current))
    call.reply.bulks(_between(current, start, stop + 1) if start <= stop else [])


def _between(current: deque[bytes], start: int, end: int) -> list[bytes]:
    """Return the elements from ``start`` to ``end``-1. Indexing one is assumed to cost as much as passing `_STRIDE`."""
    behind = len(current) - end
    if (end - start) * _STRIDE < min(start, behind):
        return [current[index] for index in range(start, end)]
    if start <= behind:
        return list(islice(current, start, end))
    return list(islice(reversed(current), behind, behind + end - start))[::-1]


def places(start: int, stop: int, length: int) -> tuple[int, int]:
    """Return the first and the last position of a range. Negative indexes count from the end. In an empty range the
    first position is after the last."""
    return (
        max(0, start + length if start < 0 else start),
        min(length - 1, stop + length if stop < 0 else stop),
    )


def lindex(call: Call) -> None:
    """LINDEX key index → the element, nil if it does not exist; a negative index counts from the end."""
    current = reading(call, call.arguments.bytes(1), deque)
    if current is None:
        call.reply.nil()
        return
    index = call.arguments.integer(2)
    call.reply.bulk_or_nil(current[index] if -len(current) <= index < len(current) else None)


def llen(call: Call) -> None:
    """LLEN key → the number of elements, 0 if the key does not exist."""
    call.reply.integer(len(reading(call, call.arguments.bytes(1), deque) or ()))
