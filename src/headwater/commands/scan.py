"""SCAN.

Source: Redis's command page and db.c.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call
from headwater.commands.globs import select
from headwater.commands.keys import type_name
from headwater.errors import CommandError
from headwater.model import MAX_U64

_DEFAULT_SCAN_COUNT = 10
_MAX_CURSOR_DIGITS = 100
"""Python refuses to parse thousands of digits. A cursor has at most 20; leading zeros are accepted."""


class _ScanOptions:
    """The options after ``SCAN cursor``."""

    def __init__(self, call: Call) -> None:
        arguments = call.arguments
        self.pattern, self.count, self.type = b"*", _DEFAULT_SCAN_COUNT, b""
        index = 2
        while index < arguments.count:
            word = arguments.token(index)
            if index + 1 == arguments.count:
                raise CommandError(SYNTAX)
            if word == b"MATCH":
                self.pattern = arguments.bytes(index + 1)
            elif word == b"COUNT":
                self.count = arguments.integer(index + 1)
                if self.count < 1:
                    raise CommandError(SYNTAX)
            elif word == b"TYPE":
                self.type = arguments.bytes(index + 1).lower()
            else:
                raise CommandError(SYNTAX)
            index += 2


def scan(call: Call) -> None:
    """SCAN cursor [MATCH pattern] [COUNT n] [TYPE type] → [next cursor, keys]."""
    text, db = call.arguments.bytes(1), call.db
    if not text.isdigit() or len(text) > _MAX_CURSOR_DIGITS or int(text) > MAX_U64:
        raise CommandError("ERR invalid cursor")
    options = _ScanOptions(call)
    cursor, names = db.order.scan(int(text), options.count)
    found = []
    for name in select(options.pattern, names):
        value = db.lookup(name, call.now_ms)
        if value is not None and options.type in (b"", type_name(value)):
            found.append(name)
    call.reply.array(2)
    call.reply.bulk(b"%d" % cursor)
    call.reply.bulks(found)
