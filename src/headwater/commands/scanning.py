"""Which keys there are: KEYS, SCAN, RANDOMKEY.

Source: Redis's command pages and db.c.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call
from headwater.commands.globs import literal, select
from headwater.commands.keys import type_name
from headwater.errors import CommandError
from headwater.model import MAX_U64

_DEFAULT_SCAN_COUNT = 10
_MAX_CURSOR_DIGITS = 100
"""Python refuses to read thousands of digits; a cursor has 20, and leading zeros are let be."""


def keys(call: Call) -> None:
    """KEYS pattern → the keys that match."""
    pattern, db = call.arguments.bytes(1), call.db
    name = literal(pattern)
    if name is None:
        found = select(pattern, db.keys(call.now_ms))
    else:
        found = [name] if db.lookup(name, call.now_ms) is not None else []
    call.reply.bulks(found)


class _ScanOptions:
    """What stands behind SCAN cursor."""

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


def randomkey(call: Call) -> None:
    """RANDOMKEY → any key, nil in an empty database."""
    call.reply.bulk_or_nil(call.db.random_key(call.draw, call.now_ms))
