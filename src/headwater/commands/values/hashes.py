"""Hashes: HSET, HMSET, HSETNX, HINCRBY, HGET, HMGET, HDEL, HGETALL, HKEYS, HVALS, HLEN, HSTRLEN, HEXISTS.

Source: Redis's command pages and t_hash.c.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.values.typed import changed, prepare, reading, writing
from headwater.common.model import MAX_I64, MIN_I64
from headwater.engine.keyspace.events import HASH
from headwater.errors import CommandError
from headwater.resp.arguments import parse_integer


def _read(call: Call) -> dict[bytes, bytes]:
    """Return the hash at argument 1, for a command that only reads; empty if the key does not exist."""
    return reading(call, call.arguments.bytes(1), dict) or {}


def hset(call: Call) -> None:
    """HSET key field value [field value …] → the number of new fields."""
    call.reply.integer(_set(call, "hset"))


def hmset(call: Call) -> None:
    """HMSET key field value [field value …] → OK."""
    _set(call, "hmset")
    call.reply.ok()


def _set(call: Call, command: str) -> int:
    """Set the fields from argument 2 on. Return the number of new fields."""
    arguments = call.arguments
    if arguments.count % 2:
        raise CommandError(f"ERR wrong number of arguments for '{command}' command")
    key, values = arguments.bytes(1), arguments.values(2)
    current = writing(call, key, dict) or {}
    pairs = list(zip(values[0::2], values[1::2], strict=True))
    new = sum(field not in current for field in {field for field, _ in pairs})
    _set_fields(call, key, pairs, b"hset")
    return new


def hsetnx(call: Call) -> None:
    """HSETNX key field value → 1, or 0 if the field exists."""
    arguments = call.arguments
    key, field = arguments.bytes(1), arguments.bytes(2)
    missing = field not in (writing(call, key, dict) or {})
    if missing:
        _set_fields(call, key, [(field, arguments.bytes(3))], b"hset")
    call.reply.integer(int(missing))


def hincrby(call: Call) -> None:
    """HINCRBY key field increment → the number after adding ``increment``; a field that does not exist
    counts as 0."""
    arguments = call.arguments
    increment = arguments.integer(3)
    key, field = arguments.bytes(1), arguments.bytes(2)
    number = parse_integer((writing(call, key, dict) or {}).get(field, b"0"))
    if number is None:
        raise CommandError("ERR hash value is not an integer")
    number += increment
    if not MIN_I64 <= number <= MAX_I64:
        raise CommandError("ERR increment or decrement would overflow")
    _set_fields(call, key, [(field, b"%d" % number)], b"hincrby")
    call.reply.integer(number)


def _set_fields(call: Call, key: bytes, pairs: list[tuple[bytes, bytes]], event: bytes) -> None:
    prepare(call, key, [text for pair in pairs for text in pair])
    call.db.set_fields(key, pairs)
    changed(call, key, HASH, event, len(pairs))


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
    """HGETALL key → a map of fields and values, empty if the key does not exist."""
    current = _read(call)
    call.reply.map(len(current))
    for field, value in current.items():
        call.reply.bulk(field)
        call.reply.bulk(value)


def hkeys(call: Call) -> None:
    """HKEYS key → the fields, empty if the key does not exist."""
    call.reply.bulks(list(_read(call)))


def hvals(call: Call) -> None:
    """HVALS key → the values, empty if the key does not exist."""
    call.reply.bulks(list(_read(call).values()))


def hstrlen(call: Call) -> None:
    """HSTRLEN key field → the length of the value, 0 if the field does not exist."""
    call.reply.integer(len(_read(call).get(call.arguments.bytes(2), b"")))


def hlen(call: Call) -> None:
    """HLEN key → the number of fields, 0 if the key does not exist."""
    call.reply.integer(len(_read(call)))


def hexists(call: Call) -> None:
    """HEXISTS key field → 1 if the hash has the field, else 0."""
    call.reply.integer(int(call.arguments.bytes(2) in _read(call)))
