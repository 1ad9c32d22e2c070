"""XSETID: set the last id and the counters of a stream.

Source: Redis's command page and t_stream.c (xsetidCommand).
"""

from __future__ import annotations

from headwater.commands.call import NO_SUCH_KEY, SYNTAX, Call
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.events import STREAM
from headwater.errors import CommandError


def xsetid(call: Call) -> None:
    """XSETID key last-id [ENTRIESADDED n] [MAXDELETEDID id] → OK."""
    arguments = call.arguments
    last_id = arguments.id(2)
    added: int | None = None
    deleted = (0, 0)
    index = 3
    while index < arguments.count:
        word = arguments.token(index)
        if word == b"ENTRIESADDED" and index + 1 < arguments.count:
            added = arguments.integer(index + 1)
            if added < 0:
                raise CommandError("ERR entries_added must be positive")
        elif word == b"MAXDELETEDID" and index + 1 < arguments.count:
            deleted = arguments.id(index + 1)
            if last_id < deleted:
                raise CommandError(
                    "ERR The ID specified in XSETID is smaller than the provided "
                    "max_deleted_entry_id"
                )
        else:
            raise CommandError(SYNTAX)
        index += 2
    key = arguments.bytes(1)
    stream = call.stream(key)
    if stream is None:
        raise CommandError(NO_SUCH_KEY)
    if last_id < stream.max_deleted_id:
        raise CommandError(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
        )
    if stream.length and last_id < stream.log.last():
        raise CommandError(
            "ERR The ID specified in XSETID is smaller than the target stream top item"
        )
    if stream.length and added is not None and added < stream.length:
        raise CommandError(
            "ERR The entries_added specified in XSETID is smaller than the target stream length"
        )
    call.admit(HEADROOM)
    stream.set_id(
        last_id,
        stream.entries_added if added is None else added,
        deleted if deleted != (0, 0) else stream.max_deleted_id,
    )
    call.keyspace.dirty += 1
    call.notify(STREAM, b"xsetid", key)
    call.reply.ok()
