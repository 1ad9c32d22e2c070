"""XLEN, XRANGE, XREVRANGE, XDEL, XSETID, XSPLIT: the entries of a stream.

Source: Redis's command pages and t_stream.c; docs/guide/streams.md for XSPLIT.
"""

from __future__ import annotations

from headwater.commands.call import NO_SUCH_KEY, SYNTAX, Call
from headwater.commands.ids import id_list, range_end, range_start
from headwater.engine.events import STREAM
from headwater.engine.facts import HEADROOM, ID_BYTES
from headwater.errors import CommandError


def xlen(call: Call) -> None:
    """XLEN key → number of entries, 0 if there is no such key."""
    stream = call.read_stream(call.key(1))
    call.reply.integer(0 if stream is None else stream.length)


def xrange(call: Call) -> None:
    """XRANGE key start end [COUNT n] → entries in id order."""
    _range(call, 2, 3, False)


def xrevrange(call: Call) -> None:
    """XREVRANGE key end start [COUNT n] → entries, newest first."""
    _range(call, 3, 2, True)


def _range(call: Call, start_at: int, end_at: int, backward: bool) -> None:
    arguments, reply = call.arguments, call.reply
    start, end = range_start(arguments, start_at), range_end(arguments, end_at)
    count = -1
    index = 4
    while index < arguments.count:
        if not arguments.is_word(index, b"COUNT") or index + 1 == arguments.count:
            raise CommandError(SYNTAX)
        count = max(0, arguments.integer(index + 1))
        index += 2
    stream = call.read_stream(call.key(1))
    if stream is None:
        reply.array(0)
        return
    if count == 0:
        reply.nil_array()
        return
    log = stream.log
    spans, total = log.backward(start, end, count) if backward else log.spans(start, end, count)
    reply.array(total)
    for span in spans:
        reply.part(span.data(), span.start(), span.stop())


def xdel(call: Call) -> None:
    """XDEL key id [id …] → how many entries were deleted; pending lists keep them."""
    arguments = call.arguments
    key = arguments.bytes(1)
    stream = call.stream(key)
    if stream is None:
        call.reply.integer(0)
        return
    ids = dict.fromkeys(id_list(arguments, 2, arguments.count))
    found = [entry_id for entry_id in ids if stream.log.contains(*entry_id)]
    if found:
        call.admit(HEADROOM + len(found) * ID_BYTES)
        stream.delete(found, marks=True)
        call.modified(key, len(found))
        call.notify(STREAM, b"xdel", key)
    call.reply.integer(len(found))


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


def xsplit(call: Call) -> None:
    """XSPLIT key start end parts → [live entries in the range, ids at which equal parts begin].

    The first part begins at the range's start and is not named; the first ``count mod parts`` parts
    are one larger. Costs block counts, no body.
    """
    arguments, reply = call.arguments, call.reply
    start, end = range_start(arguments, 2), range_end(arguments, 3)
    parts = arguments.integer(4)
    if parts < 1:
        raise CommandError("ERR parts must be a positive integer")
    stream = call.stream(arguments.bytes(1))
    total = 0 if stream is None or start > end else stream.log.count_range(start, end)
    cuts: list[tuple[int, int]] = []
    if stream is not None and total:
        size, larger = divmod(total, parts)
        steps = [part * size + min(part, larger) for part in range(1, min(parts, total))]
        cuts = stream.log.nth(start, steps)
    reply.array(2)
    reply.integer(total)
    reply.array(len(cuts))
    for cut in cuts:
        reply.id(*cut)
