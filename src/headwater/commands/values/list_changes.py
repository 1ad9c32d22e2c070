"""Changes within lists: LSET, LREM, LTRIM.

A list changes at its ends only, in memory as in the journal. A change within it replaces the elements from there to the
nearer end, which are written to the journal again.

Source: Redis's command pages and t_list.c.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from headwater.commands.call import Call
from headwater.commands.values.lists import places
from headwater.commands.values.typed import changed, prepare, writing
from headwater.engine.events import LIST
from headwater.errors import CommandError
from headwater.model import MAX_I64, MIN_I64


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
    if at < length - at:
        _replace(call, key, current, at + 1, [*islice(current, at), element], left=True)
    else:
        after = [*islice(current, at + 1, None)]
        _replace(call, key, current, length - at, [element, *after], left=False)
    changed(call, key, LIST, b"lset", 1)
    call.reply.ok()


def lrem(call: Call) -> None:
    """LREM key count element → how many elements that equal ``element`` were removed: the first ``count``, the last
    ones if it is negative, all if it is 0."""
    arguments = call.arguments
    count = arguments.integer(2)
    if count == MIN_I64:
        raise CommandError(
            f"ERR value is out of range, value must between {MIN_I64 + 1} and {MAX_I64}"
        )
    key, element = arguments.bytes(1), arguments.bytes(3)
    current = writing(call, key, deque)
    found = [place for place, one in enumerate(current or ()) if one == element]
    found = found[:count] if count > 0 else found[count:]
    if current is not None and found:
        gone, first, last = set(found), found[0], found[-1]
        left = last < len(current) - first
        start, stop = (0, last + 1) if left else (first, len(current))
        kept = [
            one
            for place, one in enumerate(islice(current, start, stop), start)
            if place not in gone
        ]
        _replace(call, key, current, stop - start, kept, left=left)
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


def _replace(
    call: Call, key: bytes, current: deque[bytes], count: int, texts: list[bytes], *, left: bool
) -> None:
    """Replace ``count`` elements at one end of the list by ``texts``, which are in the list's order."""
    prepare(call, key, texts)
    if texts and count == len(current):
        # Never empty in between: an empty list is deleted, and its expiry with it.
        call.db.push(key, texts, left=False)
        call.db.pop(key, count, left=True)
        return
    call.db.pop(key, count, left=left)
    if texts:
        call.db.push(key, texts[::-1] if left else texts, left=left)
