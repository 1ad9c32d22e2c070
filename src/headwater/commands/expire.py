"""EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT, PERSIST, TTL, PTTL, EXPIRETIME, PEXPIRETIME.

Source: Redis's command pages and expire.c.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.commands.call import Call, shown
from headwater.commands.keys import delete_key, seen
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.database import NO_EXPIRY
from headwater.engine.keyspace.events import GENERIC
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

_CONDITIONS = (b"NX", b"XX", b"GT", b"LT")
_MAX_I64 = 2**63 - 1
_SECOND = 1000
_NO_KEY = -2


def expire(call: Call) -> None:
    """EXPIRE key seconds [NX|XX|GT|LT] → 1, or 0 if the key does not exist or the condition is false."""
    _expire(call, "expire", _SECOND, since_ms=call.now_ms)


def pexpire(call: Call) -> None:
    """PEXPIRE key milliseconds [NX|XX|GT|LT] → as EXPIRE."""
    _expire(call, "pexpire", 1, since_ms=call.now_ms)


def expireat(call: Call) -> None:
    """EXPIREAT key unix-seconds [NX|XX|GT|LT] → as EXPIRE."""
    _expire(call, "expireat", _SECOND, since_ms=None)


def pexpireat(call: Call) -> None:
    """PEXPIREAT key unix-milliseconds [NX|XX|GT|LT] → as EXPIRE."""
    _expire(call, "pexpireat", 1, since_ms=None)


def moment(call: Call, index: int, unit_ms: int, *, since_ms: int | None, command: str) -> int:
    """Return argument ``index`` as a steady time. The argument is relative to the steady time ``since_ms`` or, if
    that is None, a Unix time. Raises `CommandError` if the time does not fit into 64 bits."""
    at_ms = call.arguments.integer(index) * unit_ms
    if not -_MAX_I64 - 1 <= at_ms <= _MAX_I64 - (since_ms or 0):
        raise CommandError(f"ERR invalid expire time in '{command}' command")
    return call.wall.steady_ms(at_ms) if since_ms is None else at_ms + since_ms


def end_of(call: Call, index: int, unit_ms: int, absolute: bool, command: str) -> int:
    """Return the steady time of the expiry in argument ``index``, which must be positive. Raises `CommandError`."""
    if call.arguments.integer(index) <= 0:
        raise CommandError(f"ERR invalid expire time in '{command}' command")
    since_ms = None if absolute else call.now_ms
    return moment(call, index, unit_ms, since_ms=since_ms, command=command)


def _expire(call: Call, command: str, unit_ms: int, *, since_ms: int | None) -> None:
    arguments, db = call.arguments, call.db
    conditions = _conditions(arguments)
    at_ms = moment(call, 2, unit_ms, since_ms=since_ms, command=command)
    key = arguments.bytes(1)
    if call.lookup(key) is None or not _allowed(conditions, db.expiries.get(key), at_ms):
        call.reply.integer(0)
        return
    call.admit(HEADROOM + len(key))
    let_expire(call, key, at_ms)
    call.reply.integer(1)


def let_expire(call: Call, key: bytes, at_ms: int) -> None:
    """Set the expiry of an existing key to the steady time ``at_ms``, or delete the key if that time has passed. The
    caller must have admitted `HEADROOM + len(key)` bytes."""
    if at_ms <= call.now_ms:
        delete_key(call, key)
        return
    call.db.set_expiry(key, at_ms)
    call.modified(key)
    call.notify(GENERIC, b"expire", key)


def _conditions(arguments: Arguments) -> set[bytes]:
    found = set()
    for index in range(3, arguments.count):
        word = arguments.token(index)
        if word not in _CONDITIONS:
            raise CommandError(f"ERR Unsupported option {shown(arguments.bytes(index))}")
        found.add(word)
    if b"NX" in found and len(found) > 1:
        raise CommandError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if {b"GT", b"LT"} <= found:
        raise CommandError("ERR GT and LT options at the same time are not compatible")
    return found


def _allowed(conditions: set[bytes], current: int | None, at_ms: int) -> bool:
    """Return whether the conditions of EXPIRE hold. A key without an expiry counts as expiring after all others."""
    if b"NX" in conditions and current is not None:
        return False
    if b"XX" in conditions and current is None:
        return False
    if b"GT" in conditions and (current is None or at_ms <= current):
        return False
    return not (b"LT" in conditions and current is not None and at_ms >= current)


def persist(call: Call) -> None:
    """PERSIST key → 1 if an expiry was removed, else 0."""
    key = call.arguments.bytes(1)
    had = call.lookup(key) is not None and key in call.db.expiries
    if had:
        call.admit(HEADROOM + len(key))
        let_live(call, key)
    call.reply.integer(int(had))


def let_live(call: Call, key: bytes) -> None:
    """Remove the expiry of a key that has one. The caller must have admitted `HEADROOM + len(key)`
    bytes."""
    call.db.set_expiry(key, NO_EXPIRY)
    call.modified(key)
    call.notify(GENERIC, b"persist", key)


def ttl(call: Call) -> None:
    """TTL key → the seconds left, -1 if no expiry is set, -2 if the key does not exist."""
    _tell(call, _SECOND, lambda at_ms: at_ms - call.now_ms)


def pttl(call: Call) -> None:
    """PTTL key → the milliseconds left, -1 if no expiry is set, -2 if the key does not exist."""
    _tell(call, 1, lambda at_ms: at_ms - call.now_ms)


def expiretime(call: Call) -> None:
    """EXPIRETIME key → the expiry in Unix seconds, -1 if none is set, -2 if the key does not exist."""
    _tell(call, _SECOND, call.wall.wall_ms)


def pexpiretime(call: Call) -> None:
    """PEXPIRETIME key → the expiry in Unix milliseconds, -1 if none is set, -2 if the key does not exist."""
    _tell(call, 1, call.wall.wall_ms)


def _tell(call: Call, unit_ms: int, shown_ms: Callable[[int], int]) -> None:
    """Reply with a key's expiry in units of ``unit_ms``. ``shown_ms`` turns steady time into the time to show."""
    key = call.arguments.bytes(1)
    if seen(call, key) is None:
        call.reply.integer(_NO_KEY)
        return
    at_ms = call.db.expiries.get(key)
    if at_ms is None:
        call.reply.integer(NO_EXPIRY)
    else:
        call.reply.integer((max(0, shown_ms(at_ms)) + unit_ms // 2) // unit_ms)
