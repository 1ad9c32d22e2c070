"""A value from one key to another: RENAME, RENAMENX, COPY, MOVE.

A stream takes its groups, pending entries, delays and idempotent producers along; a copy has its own.

Source: Redis's command pages and db.c.
"""

from __future__ import annotations

from headwater.commands.call import NO_SUCH_KEY, SYNTAX, Call
from headwater.commands.keys import clear_expired, type_name
from headwater.engine.database import Database, Value
from headwater.engine.events import GENERIC, OVERWRITTEN, TYPE_CHANGED
from headwater.engine.facts import HEADROOM
from headwater.engine.stream import StoredStream
from headwater.errors import CommandError
from headwater.limits import DATABASES
from headwater.resp.arguments import Arguments

_SAME = "ERR source and destination objects are the same"
_MAX_I32 = 2**31 - 1
_I32_RANGE = f"ERR value is out of range, value must between {-_MAX_I32 - 1} and {_MAX_I32}"
_GID_PAIR_BYTES = 8


def rename(call: Call) -> None:
    """RENAME key newkey → OK; what stood at ``newkey`` is gone."""
    if _rename(call, over=True):
        call.reply.ok()


def renamenx(call: Call) -> None:
    """RENAMENX key newkey → 1, or 0 if there is a ``newkey``."""
    call.reply.integer(int(_rename(call, over=False)))


def _rename(call: Call, *, over: bool) -> bool:
    """Whether it was done; a key may be renamed to itself, which changes nothing."""
    db, key, name = call.db, call.arguments.bytes(1), call.arguments.bytes(2)
    value = call.lookup(key)
    if value is None:
        raise CommandError(NO_SUCH_KEY)
    if key == name:
        return over
    there = call.lookup(name)
    if there is not None and not over:
        return False
    _admit(call, key, name)
    clear_expired(call, name)
    db.rename(key, db, name)
    call.keyspace.dirty += 1
    call.notify(GENERIC, b"rename_from", key)
    call.notify(GENERIC, b"rename_to", name)
    notify_overwritten(call, name, there, value)
    return True


def move(call: Call) -> None:
    """MOVE key db → 1, or 0 if there is no key, or one of that name in the other database."""
    db, key = call.db, call.arguments.bytes(1)
    target = _database(call, 2)
    if target is db:
        raise CommandError(_SAME)
    if call.lookup(key) is None or target.lookup(key, call.now_ms) is not None:
        call.reply.integer(0)
        return
    _admit(call, key, key)
    clear_expired(call, key, db=target)
    db.rename(key, target, key)
    call.keyspace.dirty += 1
    call.notify(GENERIC, b"move_from", key)
    call.notify(GENERIC, b"move_to", key, db=target)
    call.reply.integer(1)


def copy(call: Call) -> None:
    """COPY source destination [DB n] [REPLACE] → 1, or 0 if there is no source, or a destination
    without REPLACE."""
    db, key, name = call.db, call.arguments.bytes(1), call.arguments.bytes(2)
    target, replace = _copy_options(call)
    if target is db and key == name:
        raise CommandError(_SAME)
    value = call.read(key)
    there = target.lookup(name, call.now_ms)
    if value is None or (there is not None and not replace):
        call.reply.integer(0)
        return
    sid, gids = 0, []
    if isinstance(value, StoredStream):
        sid, gid = call.keyspace.next_sid, call.keyspace.next_gid
        gids = [(one.gid, gid + at) for at, one in enumerate(value.sorted_groups())]
    _admit(call, key, name, _GID_PAIR_BYTES * len(gids))
    clear_expired(call, name, db=target)
    db.copy(key, target, name, sid, gids)
    target.use(name, call.now_ms)
    call.keyspace.dirty += 1
    call.notify(GENERIC, b"copy_to", name, db=target)
    notify_overwritten(call, name, there, value, db=target)
    call.reply.integer(1)


def _copy_options(call: Call) -> tuple[Database, bool]:
    """Where to, and whether over what is there."""
    arguments, target, replace = call.arguments, call.db, False
    index = 3
    while index < arguments.count:
        word = arguments.token(index)
        if word == b"REPLACE":
            replace = True
        elif word == b"DB" and index + 1 < arguments.count:
            index += 1
            target = _database(call, index)
        else:
            raise CommandError(SYNTAX)
        index += 1
    return target, replace


def _database(call: Call, index: int) -> Database:
    number = _int32(call.arguments, index)
    if not 0 <= number < DATABASES:
        raise CommandError("ERR DB index is out of range")
    return call.keyspace.databases[number]


def _int32(arguments: Arguments, index: int) -> int:
    """An argument as an integer of 32 bits (Redis: getIntFromObjectOrReply)."""
    number = arguments.integer(index)
    if not -_MAX_I32 - 1 <= number <= _MAX_I32:
        raise CommandError(_I32_RANGE)
    return number


def _admit(call: Call, key: bytes, name: bytes, more: int = 0) -> None:
    call.admit(2 * HEADROOM + len(key) + 2 * len(name) + more)


def notify_overwritten(
    call: Call, key: bytes, before: Value | None, after: Value, *, db: Database | None = None
) -> None:
    """The events of a value that was put over another (Redis 8.2 and later)."""
    if before is not None:
        call.notify(OVERWRITTEN, b"overwritten", key, db=db)
        if type_name(before) != type_name(after):
            call.notify(TYPE_CHANGED, b"type_changed", key, db=db)
