"""XSPLIT: divide a range of entries into parts of nearly equal size.

Source: docs/guide/streams.md.
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.ids import range_end, range_start
from headwater.errors import CommandError


def xsplit(call: Call) -> None:
    """XSPLIT key start end parts → [number of entries in the range, ids at which the parts begin].

    The first part begins at the start of the range, so its id is not in the reply. The first ``count mod parts``
    parts have one more entry than the others. Reads the entry counts of blocks, not the entries.
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
