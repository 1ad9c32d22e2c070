"""Strings and hashes, as far as clients of streams keep small values beside them.

Source: Redis's command pages, t_string.c and t_hash.c.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, WRONGTYPE, Call
from headwater.engine.facts import HEADROOM
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

_TIME_UNITS = {b"EX": (1000, False), b"PX": (1, False), b"EXAT": (1000, True), b"PXAT": (1, True)}


def _string(call: Call, key: bytes) -> bytes | None:
    value = call.db.lookup(key, call.now_ms)
    if value is None or isinstance(value, bytes):
        return value
    raise CommandError(WRONGTYPE)


def _hash(call: Call, key: bytes) -> dict[bytes, bytes] | None:
    value = call.db.lookup(key, call.now_ms)
    if value is None or isinstance(value, dict):
        return value
    raise CommandError(WRONGTYPE)


class _SetOptions:
    """What stands behind SET key value."""

    def __init__(self, arguments: Arguments, now_ms: int) -> None:
        self.condition = b""
        self.get = False
        self.keepttl = False
        self.at_ms: int | None = None
        unit, value_at = b"", 0
        index = 3
        while index < arguments.count:
            word = arguments.token(index)
            more = index + 1 < arguments.count
            if word in (b"NX", b"XX") and self.condition in (b"", word):
                self.condition = word
            elif word == b"GET":
                self.get = True
            elif word == b"KEEPTTL" and not unit:
                self.keepttl = True
            elif word in _TIME_UNITS and more and unit in (b"", word) and not self.keepttl:
                unit, value_at = word, index + 1
                index += 1
            else:
                raise CommandError(SYNTAX)
            index += 1
        if unit:
            self._time(arguments, value_at, *_TIME_UNITS[unit], now_ms)

    def _time(
        self, arguments: Arguments, index: int, unit_ms: int, absolute: bool, now_ms: int
    ) -> None:
        value = arguments.integer(index) * unit_ms
        self.at_ms = value if absolute else now_ms + value
        if value <= 0 or self.at_ms >= 2**63:
            raise CommandError("ERR invalid expire time in 'set' command")


def set_string(call: Call) -> None:
    """SET key value [NX|XX] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL] → OK, the old value (GET), or
    nil when the condition fails."""
    arguments, db, reply = call.arguments, call.db, call.reply
    options = _SetOptions(arguments, call.now_ms)
    key, value = arguments.bytes(1), arguments.bytes(2)
    current = db.lookup(key, call.now_ms)
    old = _string(call, key) if options.get else None
    refused = (options.condition == b"NX" and current is not None) or (
        options.condition == b"XX" and current is None
    )
    if not refused:
        call.admit(2 * HEADROOM + 2 * len(key) + len(value))
        at_ms = options.at_ms
        if options.keepttl and current is not None:
            at_ms = db.expiries.get(key)
        db.set_string(key, value)
        if at_ms is not None:
            db.set_expiry(key, at_ms)
        call.modified(key)
    if options.get:
        if old is None:
            reply.nil()
        else:
            reply.bulk(old)
    elif refused:
        reply.nil()
    else:
        reply.ok()


def get(call: Call) -> None:
    """GET key → the string, nil without one."""
    value = _string(call, call.arguments.bytes(1))
    if value is None:
        call.reply.nil()
    else:
        call.reply.bulk(value)


def _set_fields(call: Call, key: bytes, pairs: list[tuple[bytes, bytes]]) -> None:
    size = sum(len(field) + len(value) + 8 for field, value in pairs)
    call.admit(2 * HEADROOM + 2 * len(key) + size)
    if key in call.db.values and call.db.lookup(key, call.now_ms) is None:
        # Its time has come: its fields must not come back with the new ones.
        call.db.delete(key)
    call.db.set_fields(key, pairs)
    call.modified(key, len(pairs))


def hset(call: Call) -> None:
    """HSET key field value [field value …] → how many fields are new."""
    arguments = call.arguments
    if arguments.count % 2:
        raise CommandError("ERR wrong number of arguments for 'hset' command")
    key = arguments.bytes(1)
    current = _hash(call, key) or {}
    values = arguments.values(2)
    pairs = list(zip(values[0::2], values[1::2], strict=True))
    new = len({field for field, _ in pairs} - current.keys())
    _set_fields(call, key, pairs)
    call.reply.integer(new)


def hsetnx(call: Call) -> None:
    """HSETNX key field value → 1, or 0 if the field is there already."""
    arguments = call.arguments
    key, field = arguments.bytes(1), arguments.bytes(2)
    missing = field not in (_hash(call, key) or {})
    if missing:
        _set_fields(call, key, [(field, arguments.bytes(3))])
    call.reply.integer(int(missing))


def hget(call: Call) -> None:
    """HGET key field → the value, nil without one."""
    value = (_hash(call, call.arguments.bytes(1)) or {}).get(call.arguments.bytes(2))
    if value is None:
        call.reply.nil()
    else:
        call.reply.bulk(value)


def hdel(call: Call) -> None:
    """HDEL key field [field …] → how many fields were there."""
    key = call.arguments.bytes(1)
    current = _hash(call, key) or {}
    fields = [field for field in dict.fromkeys(call.arguments.values(2)) if field in current]
    if fields:
        call.admit(HEADROOM + len(key) + sum(len(field) + 4 for field in fields))
        call.db.delete_fields(key, fields)
        call.modified(key, len(fields))
    call.reply.integer(len(fields))


def hgetall(call: Call) -> None:
    """HGETALL key → a map of fields and values, empty without a key."""
    current = _hash(call, call.arguments.bytes(1)) or {}
    call.reply.map(len(current))
    for field, value in current.items():
        call.reply.bulk(field)
        call.reply.bulk(value)
