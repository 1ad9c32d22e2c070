"""Commands on whole databases: DBSIZE, SWAPDB, FLUSHDB, FLUSHALL.

Source: Redis's command pages and db.c.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call
from headwater.commands.keys import clear_expired
from headwater.common.limits import DATABASES
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.database import Database
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

SAME_KEY = "ERR source and destination objects are the same"
_MAX_I32 = 2**31 - 1
_I32_RANGE = f"ERR value is out of range, value must between {-_MAX_I32 - 1} and {_MAX_I32}"


def dbsize(call: Call) -> None:
    """DBSIZE → the number of keys in the selected database."""
    call.reply.integer(call.db.count(call.now_ms))


def swapdb(call: Call) -> None:
    """SWAPDB index index → OK; clients that have selected one of the two databases then see the keys of the other."""
    first = _index(call.arguments, 1, "first")
    second = _index(call.arguments, 2, "second")
    if not (0 <= first < DATABASES and 0 <= second < DATABASES):
        raise CommandError("ERR DB index is out of range")
    if first != second:
        expired = _watched_and_expired(call, first, second)
        call.admit(HEADROOM * (1 + len(expired)) + sum(len(key) for _db, key in expired))
        for db, key in expired:
            clear_expired(call, key, db=db)
        call.keyspace.swap(first, second)
    call.keyspace.dirty += 1
    call.reply.ok()


def _watched_and_expired(call: Call, first: int, second: int) -> list[tuple[Database, bytes]]:
    """Return the expired keys that clients watch in one of the databases. SWAPDB deletes them first, so that
    replacing a missing or expired key with an expired one does not break a WATCH."""
    pair = call.keyspace.databases[first], call.keyspace.databases[second]
    watched = {**pair[0].watched, **pair[1].watched}
    return [
        (db, key)
        for db in pair
        for key in watched
        if key in db.expiries and db.lookup(key, call.now_ms) is None
    ]


def _index(arguments: Arguments, at: int, which: str) -> int:
    error = f"ERR invalid {which} DB index"
    number = arguments.integer(at, error=error)
    if not -(2**31) <= number < 2**31:
        raise CommandError(error)
    return number


def flushdb(call: Call) -> None:
    """FLUSHDB [ASYNC|SYNC] → OK; empties the selected database."""
    _check_flush(call.arguments)
    call.admit(HEADROOM)
    call.keyspace.dirty += len(call.db.values)
    _count_freed(call, len(call.db.values))
    call.keyspace.flush(call.db.index)
    call.reply.ok()


def flushall(call: Call) -> None:
    """FLUSHALL [ASYNC|SYNC] → OK; empties every database."""
    _check_flush(call.arguments)
    call.admit(HEADROOM)
    keys = sum(len(db.values) for db in call.keyspace.databases)
    call.keyspace.dirty += keys
    _count_freed(call, keys)
    call.keyspace.flush_all()
    call.reply.ok()


def _count_freed(call: Call, keys: int) -> None:
    """Count the keys as freed lazily when Redis does: always outside of MULTI and scripts, inside only with ASYNC."""
    if call.may_block or (call.arguments.count == 2 and call.arguments.token(1) == b"ASYNC"):
        call.keyspace.freed_lazily += keys


def _check_flush(arguments: Arguments) -> None:
    """Check the option. SYNC makes no difference: keys are always removed immediately and freed in slices."""
    if arguments.count > 2 or (
        arguments.count == 2 and arguments.token(1) not in (b"ASYNC", b"SYNC")
    ):
        raise CommandError(SYNTAX)


def database_at(call: Call, index: int) -> Database:
    """Return the database whose number is argument ``index`` (SELECT, MOVE, COPY). Raises `CommandError`."""
    number = _int32(call.arguments, index)
    if not 0 <= number < DATABASES:
        raise CommandError("ERR DB index is out of range")
    return call.keyspace.databases[number]


def _int32(arguments: Arguments, index: int) -> int:
    """Return an argument as a 32-bit integer (Redis: getIntFromObjectOrReply)."""
    number = arguments.integer(index)
    if not -_MAX_I32 - 1 <= number <= _MAX_I32:
        raise CommandError(_I32_RANGE)
    return number
