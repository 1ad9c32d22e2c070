"""XACK and XNACK: end deliveries of a group, regardless of the consumer that owns them.

The commands that check the owner are in `xsettle`, XACKDEL is in `xdel`.

Source: Redis's command pages and t_stream.c.
"""

from __future__ import annotations

from array import array

from headwater.commands.call import Call, shown
from headwater.commands.ids import IDBlock, distinct, id_words
from headwater.commands.xgroup import pending_group
from headwater.common.limits import MAX_DELIVERY_COUNT
from headwater.engine.facts.facts import HEADROOM, ID_BYTES
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import push_id, push_word, word_at

RELEASES = (b"SILENT", b"FAIL", b"FATAL")


def xack(call: Call) -> None:
    """XACK key group id [id …] → the number of entries that were pending."""
    arguments = call.arguments
    stream = call.read_stream(call.key(1))
    group = None if stream is None else stream.groups.get(arguments.bytes(2))
    if group is None:
        call.reply.integer(0)
        return
    ids = distinct(id_words(arguments, 3, arguments.count))
    group.pel.keep_pending(ids)
    found = len(ids) // 2
    if found:
        call.admit(HEADROOM + found * ID_BYTES)
        group.acknowledge(ids)
        call.keyspace.dirty += found
    call.reply.integer(found)


def xnack(call: Call) -> None:
    """XNACK key group SILENT|FAIL|FATAL IDS n id [id …] [RETRYCOUNT c] [FORCE] → the number of
    released entries. Any client may release any entry; XSETTLE releases only entries that the consumer owns."""
    arguments = call.arguments
    stream, group = pending_group(call)
    mode = arguments.token(3)
    if mode not in RELEASES:
        raise CommandError("ERR mode must be SILENT, FAIL, or FATAL")
    block, retry_count, force = IDBlock(), -1, False
    index = 4
    while index < arguments.count:
        more = index + 1 < arguments.count
        if more and arguments.is_word(index, b"IDS"):
            index = block.take(arguments, index)
        elif more and arguments.is_word(index, b"RETRYCOUNT"):
            retry_count = arguments.integer(index + 1)
            if retry_count < 0:
                raise CommandError("ERR Invalid RETRYCOUNT value, must be >= 0")
            index += 2
        elif arguments.is_word(index, b"FORCE"):
            force = True
            index += 1
        else:
            raise CommandError(f"ERR Unrecognized XNACK option '{shown(arguments.bytes(index))}'")
    records = _releases(stream, group, block.parse(arguments), mode, retry_count, force)
    count = len(records) // 3
    if count:
        call.admit(HEADROOM + count * (ID_BYTES + 8))
        group.release(records)
        call.keyspace.dirty += count
    call.reply.integer(count)


def _releases(
    stream: StoredStream,
    group: ConsumerGroup,
    ids: array[int],
    mode: bytes,
    retry_count: int,
    force: bool,
) -> array[int]:
    """Return the records that XNACK releases: ``(ms, seq, count)`` for each id that is pending or, with
    ``force``, in the stream. An id that is given twice is released twice."""
    records = array("Q")
    counts: dict[tuple[int, int], int] = {}
    for base in range(0, len(ids), 2):
        ms, seq = word_at(ids, base), word_at(ids, base + 1)
        entry_id = (ms, seq)
        if entry_id in counts:
            count = counts[entry_id]
        else:
            at = group.pel.find(ms, seq)
            if at >= 0:
                count = group.pel.delivery_count(at)
            elif force and stream.log.contains(ms, seq):
                count = 0
            else:
                continue
        count = retry_count if retry_count >= 0 else released_count(count, mode)
        counts[entry_id] = count
        push_id(records, ms, seq)
        push_word(records, count)
    return records


def released_count(count: int, mode: bytes) -> int:
    """Return the delivery count after a release: SILENT subtracts one, FATAL sets the maximum."""
    if mode == b"FATAL":
        return MAX_DELIVERY_COUNT
    return max(0, count - 1) if mode == b"SILENT" else count
