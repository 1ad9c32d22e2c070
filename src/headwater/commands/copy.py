"""COPY.

The copy of a stream has its own groups, pending entries, delays and idempotent producers.

Source: Redis's command page and db.c.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call, new_number
from headwater.commands.databases import SAME_KEY, database_at
from headwater.commands.keys import clear_expired, notify_overwritten
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.database import Database
from headwater.engine.keyspace.events import GENERIC
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError

_GID_PAIR_BYTES = 8


def copy(call: Call) -> None:
    """COPY source destination [DB n] [REPLACE] → 1, or 0 if the source does not exist, or
    the destination exists and REPLACE is not given."""
    db, key, name = call.db, call.arguments.bytes(1), call.arguments.bytes(2)
    target, replace = _copy_options(call)
    if target is db and key == name:
        raise CommandError(SAME_KEY)
    value = call.read(key)
    there = target.lookup(name, call.now_ms)
    if value is None or (there is not None and not replace):
        call.reply.integer(0)
        return
    sid, gids = 0, []
    if isinstance(value, StoredStream):
        groups = value.sorted_groups()
        sid = new_number(call.keyspace.next_sid)
        gid = new_number(call.keyspace.next_gid, len(groups))
        gids = [(one.gid, gid + at) for at, one in enumerate(groups)]
    call.admit(2 * HEADROOM + len(key) + 2 * len(name) + _GID_PAIR_BYTES * len(gids))
    clear_expired(call, name, db=target)
    db.copy(key, target, name, sid, gids)
    target.use(name, target.values[name], call.now_ms)
    call.keyspace.dirty += 1
    call.notify(GENERIC, b"copy_to", name, db=target)
    notify_overwritten(call, name, there, value, db=target)
    call.reply.integer(1)


def _copy_options(call: Call) -> tuple[Database, bool]:
    """Parse the options. Return the destination's database, and whether REPLACE is given."""
    arguments, target, replace = call.arguments, call.db, False
    index = 3
    while index < arguments.count:
        word = arguments.token(index)
        if word == b"REPLACE":
            replace = True
        elif word == b"DB" and index + 1 < arguments.count:
            index += 1
            target = database_at(call, index)
        else:
            raise CommandError(SYNTAX)
        index += 1
    return target, replace
