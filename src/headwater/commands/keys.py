"""Commands on keys of any type: DEL, UNLINK, EXISTS, TOUCH, TYPE, KEYS, RANDOMKEY.

Source: Redis's command pages and db.c.
"""

from __future__ import annotations

from collections import deque

from headwater.commands.call import Call
from headwater.commands.globs import literal, select
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.database import Database, Value
from headwater.engine.keyspace.events import EXPIRED, GENERIC, OVERWRITTEN, TYPE_CHANGED
from headwater.engine.streams.stream import StoredStream


def delete(call: Call) -> None:
    """DEL key [key …], UNLINK key [key …] → the number of keys that existed.

    Both remove a value immediately, and free the memory of a large value later, in slices (`Keyspace.garbage`).
    """
    db = call.db
    keys = [
        key
        for key in dict.fromkeys(call.arguments.values(1))
        if db.lookup(key, call.now_ms) is not None
    ]
    if keys:
        call.admit(sum(HEADROOM + len(key) for key in keys))
        for key in keys:
            delete_key(call, key)
    call.reply.integer(len(keys))


def delete_key(call: Call, key: bytes) -> None:
    """Delete an existing key, as DEL does. The caller must have admitted `HEADROOM + len(key)` bytes."""
    call.db.delete(key)
    call.modified(key)
    call.notify(GENERIC, b"del", key)


def clear_expired(call: Call, key: bytes, *, db: Database | None = None) -> None:
    """Delete ``key`` if it has expired but is still stored, so that a new value inherits nothing from it.
    For commands that write. The caller must have admitted `HEADROOM + len(key)` bytes."""
    place = call.db if db is None else db
    if key in place.values and place.lookup(key, call.now_ms) is None:
        place.delete(key)
        call.notify(EXPIRED, b"expired", key, db=place)


def exists(call: Call) -> None:
    """EXISTS key [key …] → the number of keys that exist; a key that is named twice counts twice."""
    call.reply.integer(sum(seen(call, key) is not None for key in call.arguments.values(1)))


def touch(call: Call) -> None:
    """TOUCH key [key …] → the number of keys that exist; their idle times are reset."""
    found = 0
    for key in call.arguments.values(1):
        value = seen(call, key)
        if value is not None:
            call.db.use(key, value, call.now_ms)  # even with CLIENT NO-TOUCH
            found += 1
    call.reply.integer(found)


def seen(call: Call, key: bytes) -> Value | None:
    """Return the value at ``key``, or None, without resetting its idle time. Counts a hit or a miss."""
    value = call.db.lookup(key, call.now_ms)
    if value is None:
        call.missed(key)
    else:
        call.keyspace.hits += 1
    return value


def type_name(value: Value | None) -> bytes:
    """Return the name of a value's type, as TYPE shows it; ``none`` for None."""
    if value is None:
        return b"none"
    if isinstance(value, StoredStream):
        return b"stream"
    if isinstance(value, bytes):
        return b"string"
    if isinstance(value, dict):
        return b"hash"
    return b"list" if isinstance(value, deque) else b"set"


def type_of(call: Call) -> None:
    """TYPE key → ``stream``, ``string``, ``list``, ``set``, ``hash`` or ``none``."""
    call.reply.simple(type_name(seen(call, call.arguments.bytes(1))))


def keys(call: Call) -> None:
    """KEYS pattern → the keys that match the pattern."""
    pattern, db = call.arguments.bytes(1), call.db
    name = literal(pattern)
    if name is None:
        found = select(pattern, db.keys(call.now_ms))
    else:
        found = [name] if db.lookup(name, call.now_ms) is not None else []
    call.reply.bulks(found)


def randomkey(call: Call) -> None:
    """RANDOMKEY → a random key, nil if the database is empty."""
    call.reply.bulk_or_nil(call.db.random_key(call.draw, call.now_ms))


def notify_overwritten(
    call: Call, key: bytes, before: Value | None, after: Value, *, db: Database | None = None
) -> None:
    """Record the events for a value that replaced another (Redis 8.2 and later)."""
    if before is not None:
        call.notify(OVERWRITTEN, b"overwritten", key, db=db)
        if type_name(before) != type_name(after):
            call.notify(TYPE_CHANGED, b"type_changed", key, db=db)
