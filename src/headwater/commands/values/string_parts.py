"""Parts of strings: GETRANGE, SETRANGE.

Source: Redis's command pages and t_string.c.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.values.strings import TOO_LONG, change_string
from headwater.commands.values.typed import reading, writing
from headwater.errors import CommandError
from headwater.limits import MAX_BULK_BYTES


def getrange(call: Call) -> None:
    """GETRANGE key start end → the bytes from ``start`` to ``end``, inclusive; negative indexes count from
    the end."""
    arguments = call.arguments
    start, end = arguments.integer(2), arguments.integer(3)
    text = reading(call, arguments.bytes(1), bytes) or b""
    if start < 0 and end < 0 and start > end:
        call.reply.bulk(b"")
        return
    start = max(0, start + len(text) if start < 0 else start)
    end = max(0, end + len(text) if end < 0 else end)
    call.reply.bulk(text[start : end + 1])


def setrange(call: Call) -> None:
    """SETRANGE key offset value → the length of the string after ``value`` was written at ``offset``, with zero
    bytes between its end and ``offset``."""
    arguments = call.arguments
    offset = arguments.integer(2)
    if offset < 0:
        raise CommandError("ERR offset is out of range")
    key, part = arguments.bytes(1), arguments.bytes(3)
    text = writing(call, key, bytes) or b""
    if not part:
        call.reply.integer(len(text))
        return
    if offset + len(part) > MAX_BULK_BYTES:
        raise CommandError(TOO_LONG)
    changed = text[:offset].ljust(offset, b"\0") + part + text[offset + len(part) :]
    change_string(call, key, changed, b"setrange")
    call.keyspace.grow(changed)
    call.reply.integer(len(changed))
