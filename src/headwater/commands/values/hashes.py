"""Hashes: HSET, HSETNX, HGET, HMGET, HDEL, HGETALL, HLEN, HEXISTS.

Source: Redis's command pages and t_hash.c.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.values.typed import changed, prepare, reading, writing
from headwater.engine.events import HASH
from headwater.errors import CommandError


def _read(call: Call) -> dict[bytes, bytes]:
    """The hash at argument 1, for a command that only reads; empty without a key."""
    return reading(call, call.arguments.bytes(1), dict) or {}


def hset(call: Call) -> None:
    """HSET key field value [field value …] → the number of new fields."""
    arguments = call.arguments
    if arguments.count % 2:
        raise CommandError("ERR wrong number of arguments for 'hset' command")
    key, values = arguments.bytes(1), arguments.values(2)
    current = writing(call, key, dict) or {}
    pairs = list(zip(values[0::2], values[1::2], strict=True))
    new = sum(field not in current for field in {field for field, _ in pairs})
    _set_fields(call, key, pairs)
    call.reply.integer(new)


def hsetnx(call: Call) -> None:
    """HSETNX key field value → 1, or 0 if the field exists."""
    arguments = call.arguments
    key, field = arguments.bytes(1), arguments.bytes(2)
    missing = field not in (writing(call, key, dict) or {})
    if missing:
        _set_fields(call, key, [(field, arguments.bytes(3))])
    call.reply.integer(int(missing))


def _set_fields(call: Call, key: bytes, pairs: list[tuple[bytes, bytes]]) -> None:
    prepare(call, key, [text for pair in pairs for text in pair])
    call.db.set_fields(key, pairs)
    changed(call, key, HASH, b"hset", len(pairs))


def hdel(call: Call) -> None:
    """HDEL key field [field …] → the number of deleted fields."""
    key = call.arguments.bytes(1)
    current = writing(call, key, dict) or {}
    fields = [field for field in dict.fromkeys(call.arguments.values(2)) if field in current]
    if fields:
        prepare(call, key, fields)
        call.db.delete_fields(key, fields)
        changed(call, key, HASH, b"hdel", len(fields))
    call.reply.integer(len(fields))


def hget(call: Call) -> None:
    """HGET key field → the value, nil if the field does not exist."""
    call.reply.bulk_or_nil(_read(call).get(call.arguments.bytes(2)))


def hmget(call: Call) -> None:
    """HMGET key field [field …] → the values, nil for each field that does not exist."""
    current = _read(call)
    fields = call.arguments.values(2)
    call.reply.array(len(fields))
    for field in fields:
        call.reply.bulk_or_nil(current.get(field))


def hgetall(call: Call) -> None:
    """HGETALL key → a map of fields and values, empty without a key."""
    current = _read(call)
    call.reply.map(len(current))
    for field, value in current.items():
        call.reply.bulk(field)
        call.reply.bulk(value)


def hlen(call: Call) -> None:
    """HLEN key → the number of fields, 0 without a key."""
    call.reply.integer(len(_read(call)))


def hexists(call: Call) -> None:
    """HEXISTS key field → 1 if the hash has the field, else 0."""
    call.reply.integer(int(call.arguments.bytes(2) in _read(call)))
