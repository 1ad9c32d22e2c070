"""What acts on whole databases: DBSIZE, SWAPDB, FLUSHDB, FLUSHALL.

Source: Redis's command pages and db.c.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call
from headwater.engine.facts import HEADROOM
from headwater.errors import CommandError
from headwater.limits import DATABASES
from headwater.resp.arguments import Arguments


def dbsize(call: Call) -> None:
    """DBSIZE → number of keys in the selected database."""
    call.reply.integer(call.db.count(call.now_ms))


def swapdb(call: Call) -> None:
    """SWAPDB index index → OK; whoever has one selected sees the other's keys from now on."""
    first = _index(call.arguments, 1, "first")
    second = _index(call.arguments, 2, "second")
    if not (0 <= first < DATABASES and 0 <= second < DATABASES):
        raise CommandError("ERR DB index is out of range")
    if first != second:
        call.admit(HEADROOM)
        call.keyspace.swap(first, second)
    call.keyspace.dirty += 1
    call.reply.ok()


def _index(arguments: Arguments, at: int, which: str) -> int:
    error = f"ERR invalid {which} DB index"
    number = arguments.integer(at, error=error)
    if not -(2**31) <= number < 2**31:
        raise CommandError(error)
    return number


def flushdb(call: Call) -> None:
    """FLUSHDB [ASYNC|SYNC] → OK; the selected database is empty."""
    _check_flush(call.arguments)
    call.admit(HEADROOM)
    call.keyspace.dirty += len(call.db.values)
    call.keyspace.flush(call.db.index)
    call.reply.ok()


def flushall(call: Call) -> None:
    """FLUSHALL [ASYNC|SYNC] → OK; every database is empty."""
    _check_flush(call.arguments)
    call.admit(HEADROOM)
    call.keyspace.dirty += sum(len(db.values) for db in call.keyspace.databases)
    call.keyspace.flush_all()
    call.reply.ok()


def _check_flush(arguments: Arguments) -> None:
    """SYNC makes no difference: keys are gone at once, and what they held is freed in slices."""
    if arguments.count > 2 or (
        arguments.count == 2 and arguments.token(1) not in (b"ASYNC", b"SYNC")
    ):
        raise CommandError(SYNTAX)
