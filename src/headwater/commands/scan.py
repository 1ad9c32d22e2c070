"""SCAN.

Source: Redis's command page and db.c.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call
from headwater.commands.globs import select
from headwater.commands.keys import type_name
from headwater.common.model import MAX_U64
from headwater.errors import CommandError

_DEFAULT_SCAN_COUNT = 10
_MAX_CURSOR_DIGITS = 100
"""Maximum number of digits of a cursor. 20 suffice for its value; more can only be leading zeros."""


class ScanOptions:
    """The options after the cursor, from argument ``index`` on. ``kind`` is the type of the scanned value; empty for
    the keyspace."""

    def __init__(self, call: Call, index: int, kind: bytes = b"") -> None:
        arguments = call.arguments
        self.pattern, self.count, self.type = b"*", _DEFAULT_SCAN_COUNT, b""
        self.with_values = True
        while index < arguments.count:
            word = arguments.token(index)
            has_value = index + 1 < arguments.count
            if word == b"MATCH" and has_value:
                self.pattern = arguments.bytes(index + 1)
            elif word == b"COUNT" and has_value:
                self.count = arguments.integer(index + 1)
                if self.count < 1:
                    raise CommandError(SYNTAX)
            elif word == b"TYPE" and has_value and not kind:
                self.type = arguments.bytes(index + 1).lower()
            elif word == b"NOVALUES":
                if kind != b"hash":
                    raise CommandError("ERR NOVALUES option can only be used in HSCAN")
                self.with_values = False
                index += 1
                continue
            else:
                raise CommandError(SYNTAX)
            index += 2


def read_cursor(call: Call, index: int) -> int:
    """Return the cursor in argument ``index``. Raises `CommandError` if it is invalid."""
    text = call.arguments.bytes(index)
    if not text.isdigit() or len(text) > _MAX_CURSOR_DIGITS or int(text) > MAX_U64:
        raise CommandError("ERR invalid cursor")
    return int(text)


def scan(call: Call) -> None:
    """SCAN cursor [MATCH pattern] [COUNT n] [TYPE type] → [next cursor, keys]."""
    db, begin = call.db, read_cursor(call, 1)
    options = ScanOptions(call, 2)
    cursor, names = db.order.scan(begin, options.count)
    found = []
    for name in select(options.pattern, names):
        value = db.lookup(name, call.now_ms)
        if value is not None and options.type in (b"", type_name(value)):
            found.append(name)
    call.reply.array(2)
    call.reply.bulk(b"%d" % cursor)
    call.reply.bulks(found)
