"""XCOUNTERS: the counters of many streams.

Source: docs/guide/streams.md.
"""

from __future__ import annotations

from headwater.commands.call import Call


def xcounters(call: Call) -> None:
    """XCOUNTERS key [key …] → for each key [length, first id, last id, greatest deleted id, entries added], or nil if
    the key does not exist.

    The values are those of XINFO STREAM, which also returns the first and the last entry.
    """
    arguments, reply = call.arguments, call.reply
    streams = [call.stream(key) for key in arguments.values(1)]
    reply.array(len(streams))
    for stream in streams:
        if stream is None:
            reply.nil()
            continue
        reply.array(5)
        reply.integer(stream.length)
        reply.id(*stream.log.first())
        reply.id(*stream.last_id)
        reply.id(*stream.max_deleted_id)
        reply.integer(stream.entries_added)
