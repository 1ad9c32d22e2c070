"""Parts of strings: GETRANGE, SETRANGE.

Source: Redis's command pages and t_string.c.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.values.strings import write_part
from headwater.commands.values.typed import reading, writing
from headwater.errors import CommandError


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
    """SETRANGE key offset value → the new length of the string. Writes ``value`` at ``offset``; a gap between the old
    end and ``offset`` is filled with zero bytes."""
    arguments = call.arguments
    offset = arguments.integer(2)
    if offset < 0:
        raise CommandError("ERR offset is out of range")
    key, part = arguments.bytes(1), arguments.bytes(3)
    length = len(writing(call, key, bytes) or b"")
    if part:
        write_part(call, key, offset, part, b"setrange")
    else:
        call.reply.integer(length)
