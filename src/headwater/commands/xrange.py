"""XRANGE, XREVRANGE and XLEN.

Source: Redis's command pages and t_stream.c.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call
from headwater.commands.ids import range_end, range_start
from headwater.commands.reply_tail import write_spans
from headwater.engine.entries.entry_log import any_stored
from headwater.engine.tier.warming import warm
from headwater.errors import CommandError


def xlen(call: Call) -> None:
    """XLEN key → the number of entries, 0 if the key does not exist."""
    stream = call.read_stream(call.key(1))
    call.reply.integer(0 if stream is None else stream.length)


def xrange(call: Call) -> None:
    """XRANGE key start end [COUNT n] → the entries, in id order."""
    _range(call, 2, 3, False)


def xrevrange(call: Call) -> None:
    """XREVRANGE key end start [COUNT n] → the entries, newest first."""
    _range(call, 3, 2, True)


def _range(call: Call, start_at: int, end_at: int, backward: bool) -> None:
    arguments, reply = call.arguments, call.reply
    start, end = range_start(arguments, start_at), range_end(arguments, end_at)
    count = -1
    index = 4
    while index < arguments.count:
        if not arguments.is_word(index, b"COUNT") or index + 1 == arguments.count:
            raise CommandError(SYNTAX)
        count = max(0, arguments.count_at(index + 1))
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
    if any_stored(spans):
        warm(log.sealing, ((log, spans),), backward=backward, most_bytes=reply.piece_bytes)
    reply.array(total)
    write_spans(reply, spans, backward)
