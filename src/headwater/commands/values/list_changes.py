"""Changes within lists: LSET, LREM, LTRIM.

Source: Redis's command pages and t_list.c.
"""

from __future__ import annotations

from collections import deque

from headwater.commands.call import Call
from headwater.commands.values.lists import places
from headwater.commands.values.typed import changed, prepare, writing
from headwater.common.model import MAX_I64, MIN_I64
from headwater.engine.accounts.value_account import places_of
from headwater.engine.keyspace.events import LIST
from headwater.errors import CommandError


def lset(call: Call) -> None:
    """LSET key index element → OK; a negative index counts from the end."""
    arguments = call.arguments
    key = arguments.bytes(1)
    current = writing(call, key, deque)
    if current is None:
        raise CommandError("ERR no such key")
    index, element, length = arguments.integer(2), arguments.bytes(3), len(current)
    at = index + length if index < 0 else index
    if not 0 <= at < length:
        raise CommandError("ERR index out of range")
    prepare(call, key, [element])
    call.db.set_element(key, at, element)
    changed(call, key, LIST, b"lset", 1)
    call.reply.ok()


def lrem(call: Call) -> None:
    """LREM key count element → the number of removed elements. Removes the first ``count`` elements that equal
    ``element``, the last ones if ``count`` is negative, all if ``count`` is 0."""
    arguments = call.arguments
    count = arguments.integer(2)
    if count == MIN_I64:
        raise CommandError(
            f"ERR value is out of range, value must between {MIN_I64 + 1} and {MAX_I64}"
        )
    key, element = arguments.bytes(1), arguments.bytes(3)
    current = writing(call, key, deque)
    found: list[int] = []
    if current is not None:
        most = min(abs(count) or len(current), len(current))
        found = places_of(current, element, most, count >= 0)
    if found:
        prepare(call, key, [element])
        call.db.remove_elements(key, element, found, left=count >= 0)
        changed(call, key, LIST, b"lrem", len(found))
    call.reply.integer(len(found))


def ltrim(call: Call) -> None:
    """LTRIM key start stop → OK; only the elements from ``start`` to ``stop``, inclusive, remain."""
    arguments = call.arguments
    start, stop = arguments.integer(2), arguments.integer(3)
    key = arguments.bytes(1)
    current = writing(call, key, deque)
    if current is not None:
        length = len(current)
        start, stop = places(start, stop, length)
        before, after = (start, length - 1 - stop) if start <= stop else (length, 0)
        prepare(call, key, [])
        if before:
            call.db.pop(key, before, left=True)
        if after:
            call.db.pop(key, after, left=False)
        changed(call, key, LIST, b"ltrim", before + after)
    call.reply.ok()
