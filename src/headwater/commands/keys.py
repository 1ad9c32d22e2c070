"""What acts on any key, whatever it holds: DEL, UNLINK, EXISTS, TOUCH, TYPE.

Source: Redis's command pages and db.c.
"""

from __future__ import annotations

from collections import deque

from headwater.commands.call import Call
from headwater.engine.database import Database, Value
from headwater.engine.events import EXPIRED, GENERIC
from headwater.engine.facts import HEADROOM
from headwater.engine.stream import StoredStream


def delete(call: Call) -> None:
    """DEL key [key …], UNLINK key [key …] → how many were there.

    Both let go of a value at once and free it later, in slices (`Keyspace.garbage`).
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
    """Delete a key that is there, as DEL does; admitted before, `HEADROOM` and the key."""
    call.db.delete(key)
    call.modified(key)
    call.notify(GENERIC, b"del", key)


def clear_expired(call: Call, key: bytes, *, db: Database | None = None) -> None:
    """Delete ``key`` if its time has come and nobody has yet, so that nothing of it stands in what
    is put there next. To be called by what writes, which has asked for `HEADROOM` and the key."""
    place = call.db if db is None else db
    if key in place.values and place.lookup(key, call.now_ms) is None:
        place.delete(key)
        call.notify(EXPIRED, b"expired", key, db=place)


def exists(call: Call) -> None:
    """EXISTS key [key …] → how many are there; one named twice counts twice."""
    call.reply.integer(sum(seen(call, key) is not None for key in call.arguments.values(1)))


def touch(call: Call) -> None:
    """TOUCH key [key …] → how many are there; their idle times begin anew."""
    found = 0
    for key in call.arguments.values(1):
        if seen(call, key) is not None:
            call.db.use(key, call.now_ms)  # by a client that has asked for NO-TOUCH as well
            found += 1
    call.reply.integer(found)


def seen(call: Call, key: bytes) -> Value | None:
    """The value at ``key`` for a command that does not use it: its idle time goes on."""
    value = call.db.lookup(key, call.now_ms)
    if value is None:
        call.missed(key)
    else:
        call.keyspace.hits += 1
    return value


def type_name(value: Value | None) -> bytes:
    """The name that TYPE gives to a value."""
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
