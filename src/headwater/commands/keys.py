"""What acts on any key, whatever it holds: DEL, EXISTS, TYPE, expiry, KEYS, SCAN, FLUSHALL.

Source: Redis's command pages, db.c and expire.c.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call
from headwater.commands.globs import matches
from headwater.engine.database import NO_EXPIRY, Value
from headwater.engine.facts import HEADROOM
from headwater.engine.stream import Stream
from headwater.errors import CommandError
from headwater.model import MAX_U64
from headwater.resp.arguments import Arguments

_DEFAULT_SCAN_COUNT = 10
_MAX_CURSOR_DIGITS = 100
"""Python refuses to read thousands of digits; a cursor has 20, and leading zeros are let be."""
_EXPIRE_CONDITIONS = (b"NX", b"XX", b"GT", b"LT")


def _keys(arguments: Arguments) -> list[bytes]:
    return arguments.values(1)


def delete(call: Call) -> None:
    """DEL key [key …], UNLINK key [key …] → how many were there."""
    keys = [
        key
        for key in dict.fromkeys(_keys(call.arguments))
        if call.db.lookup(key, call.now_ms) is not None
    ]
    if keys:
        call.admit(sum(HEADROOM + len(key) for key in keys))
        for key in keys:
            call.db.delete(key)
            call.modified(key)
    call.reply.integer(len(keys))


def exists(call: Call) -> None:
    """EXISTS key [key …] → how many are there; one named twice counts twice."""
    found = [call.db.lookup(key, call.now_ms) is not None for key in _keys(call.arguments)]
    call.reply.integer(sum(found))


def type_name(value: Value | None) -> bytes:
    """The name that TYPE gives to a value."""
    if value is None:
        return b"none"
    if isinstance(value, Stream):
        return b"stream"
    return b"string" if isinstance(value, bytes) else b"hash"


def type_of(call: Call) -> None:
    """TYPE key → ``stream``, ``string``, ``hash`` or ``none``."""
    call.reply.simple(type_name(call.db.lookup(call.arguments.bytes(1), call.now_ms)))


def expire(call: Call) -> None:
    """EXPIRE key seconds [NX|XX|GT|LT] → 1, or 0 if there is no key or the condition fails."""
    _expire(call, "expire", 1000)


def pexpire(call: Call) -> None:
    """PEXPIRE key milliseconds [NX|XX|GT|LT] → as EXPIRE."""
    _expire(call, "pexpire", 1)


def _expire(call: Call, name: str, unit_ms: int) -> None:
    arguments, db = call.arguments, call.db
    conditions = _conditions(arguments)
    at_ms = call.now_ms + arguments.integer(2) * unit_ms
    if not -(2**63) <= at_ms < 2**63:
        raise CommandError(f"ERR invalid expire time in '{name}' command")
    key = arguments.bytes(1)
    if db.lookup(key, call.now_ms) is None or not _allowed(conditions, db.expiries.get(key), at_ms):
        call.reply.integer(0)
        return
    call.admit(HEADROOM + len(key))
    if at_ms <= call.now_ms:
        db.delete(key)
    else:
        db.set_expiry(key, at_ms)
    call.modified(key)
    call.reply.integer(1)


def _conditions(arguments: Arguments) -> set[bytes]:
    found = set()
    for index in range(3, arguments.count):
        word = arguments.token(index)
        if word not in _EXPIRE_CONDITIONS:
            typed = arguments.bytes(index).decode("utf-8", "surrogateescape")
            raise CommandError(f"ERR Unsupported option {typed}")
        found.add(word)
    if b"NX" in found and len(found) > 1:
        raise CommandError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if {b"GT", b"LT"} <= found:
        raise CommandError("ERR GT and LT options at the same time are not compatible")
    return found


def _allowed(conditions: set[bytes], current: int | None, at_ms: int) -> bool:
    """Whether the conditions of EXPIRE hold; a key without expiry ends later than any time."""
    if b"NX" in conditions and current is not None:
        return False
    if b"XX" in conditions and current is None:
        return False
    if b"GT" in conditions and (current is None or at_ms <= current):
        return False
    return not (b"LT" in conditions and current is not None and at_ms >= current)


def persist(call: Call) -> None:
    """PERSIST key → 1 if it had an expiry that is now gone."""
    key = call.arguments.bytes(1)
    had = call.db.lookup(key, call.now_ms) is not None and key in call.db.expiries
    if had:
        call.admit(HEADROOM + len(key))
        call.db.set_expiry(key, NO_EXPIRY)
        call.modified(key)
    call.reply.integer(int(had))


def ttl(call: Call) -> None:
    """TTL key → seconds left, -1 without expiry, -2 without key."""
    left = _left_ms(call)
    call.reply.integer(left if left < 0 else (left + 500) // 1000)


def pttl(call: Call) -> None:
    """PTTL key → milliseconds left, -1 without expiry, -2 without key."""
    call.reply.integer(_left_ms(call))


def _left_ms(call: Call) -> int:
    key = call.arguments.bytes(1)
    if call.db.lookup(key, call.now_ms) is None:
        return -2
    at = call.db.expiries.get(key)
    return -1 if at is None else at - call.now_ms


def keys(call: Call) -> None:
    """KEYS pattern → the keys that match."""
    pattern = call.arguments.bytes(1)
    call.reply.bulks([key for key in call.db.keys(call.now_ms) if matches(pattern, key)])


def scan(call: Call) -> None:
    """SCAN cursor [MATCH pattern] [COUNT n] [TYPE type] → [next cursor, keys]."""
    arguments, db = call.arguments, call.db
    text = arguments.bytes(1)
    if not text.isdigit() or len(text) > _MAX_CURSOR_DIGITS or int(text) > MAX_U64:
        raise CommandError("ERR invalid cursor")
    pattern, count, wanted = b"*", _DEFAULT_SCAN_COUNT, b""
    index = 2
    while index < arguments.count:
        word = arguments.token(index)
        if index + 1 == arguments.count:
            raise CommandError(SYNTAX)
        if word == b"MATCH":
            pattern = arguments.bytes(index + 1)
        elif word == b"COUNT":
            count = arguments.integer(index + 1)
            if count < 1:
                raise CommandError(SYNTAX)
        elif word == b"TYPE":
            wanted = arguments.bytes(index + 1).lower()
        else:
            raise CommandError(SYNTAX)
        index += 2
    cursor, names = db.order.scan(int(text), count)
    found = []
    for name in names:
        value = db.lookup(name, call.now_ms)
        if value is not None and matches(pattern, name) and wanted in (b"", type_name(value)):
            found.append(name)
    call.reply.array(2)
    call.reply.bulk(b"%d" % cursor)
    call.reply.bulks(found)


def dbsize(call: Call) -> None:
    """DBSIZE → number of keys in the selected database."""
    call.reply.integer(len(call.db.keys(call.now_ms)))


def flushdb(call: Call) -> None:
    """FLUSHDB [ASYNC|SYNC] → OK; the selected database is empty."""
    _check_flush(call.arguments)
    call.admit(HEADROOM)
    call.keyspace.dirty += len(call.db.values)
    call.db.flush()
    call.reply.ok()


def flushall(call: Call) -> None:
    """FLUSHALL [ASYNC|SYNC] → OK; every database is empty."""
    _check_flush(call.arguments)
    call.admit(HEADROOM)
    call.keyspace.dirty += sum(len(db.values) for db in call.keyspace.databases)
    call.keyspace.flush_all()
    call.reply.ok()


def _check_flush(arguments: Arguments) -> None:
    if arguments.count > 2 or (
        arguments.count == 2 and arguments.token(1) not in (b"ASYNC", b"SYNC")
    ):
        raise CommandError(SYNTAX)
