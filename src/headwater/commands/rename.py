"""RENAME, RENAMENX and MOVE.

A stream keeps its groups, pending entries, delays and idempotent producers.

Source: Redis's command pages and db.c.
"""

from __future__ import annotations

from headwater.commands.call import NO_SUCH_KEY, Call
from headwater.commands.databases import SAME_KEY, database_at
from headwater.commands.keys import clear_expired, notify_overwritten
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.events import GENERIC
from headwater.errors import CommandError


def rename(call: Call) -> None:
    """RENAME key newkey → OK; a value at ``newkey`` is overwritten."""
    if _rename(call, over=True):
        call.reply.ok()


def renamenx(call: Call) -> None:
    """RENAMENX key newkey → 1, or 0 if ``newkey`` exists."""
    call.reply.integer(int(_rename(call, over=False)))


def _rename(call: Call, *, over: bool) -> bool:
    """Rename the key. Return whether the command succeeded. Renaming a key to itself changes nothing."""
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
    """MOVE key db → 1, or 0 if the key does not exist or the other database already has the key."""
    db, key = call.db, call.arguments.bytes(1)
    target = database_at(call, 2)
    if target is db:
        raise CommandError(SAME_KEY)
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


def _admit(call: Call, key: bytes, name: bytes) -> None:
    call.admit(2 * HEADROOM + len(key) + 2 * len(name))
