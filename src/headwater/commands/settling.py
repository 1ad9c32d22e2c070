"""XACK, XNACK, XRENEW, XSETTLE: how deliveries end, or are held.

Source: Redis's command pages and t_stream.c; docs/guide/streams.md for XRENEW and XSETTLE, which
ask who owns an entry before they do anything to it.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from headwater.commands.addition import AddRequest
from headwater.commands.call import SYNTAX, Call, shown
from headwater.commands.deleting import acknowledge_and_delete, removal_bytes
from headwater.commands.groups import pending_group
from headwater.commands.ids import distinct, id_words
from headwater.commands.trimming import KEEPREF, REFERENCE_MODES
from headwater.engine.facts import HEADROOM, ID_BYTES
from headwater.engine.group import ConsumerGroup, GroupConsumer
from headwater.engine.stream import StoredStream
from headwater.errors import CommandError
from headwater.limits import MAX_DELIVERY_COUNT
from headwater.model import flat_words, id_pairs
from headwater.resp.arguments import Arguments

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import push_id, push_word, word_at

RELEASES = (b"SILENT", b"FAIL", b"FATAL")
_MAX_NUMIDS = 2**31 - 1
_NUMIDS = "ERR numids must be a positive integer"
_NUMIDS_MATCH = "ERR number of IDs doesn't match numids"


def xack(call: Call) -> None:
    """XACK key group id [id …] → how many were pending and are no longer."""
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


class _IDs:
    """``IDS n id …`` as XNACK and our verbs read it; a second block replaces the first."""

    def __init__(self) -> None:
        self.start = 0
        self.count = 0

    def take(self, arguments: Arguments, index: int) -> int:
        """Read the block whose IDS stands at ``index``; the index behind it."""
        self.count = arguments.integer(index + 1, error=_NUMIDS)
        if not 0 < self.count <= _MAX_NUMIDS:
            raise CommandError(_NUMIDS)
        self.start = index + 2
        if self.count > arguments.count - self.start:
            raise CommandError(_NUMIDS_MATCH)
        return self.start + self.count

    def parse(self, arguments: Arguments) -> array[int]:
        """The ids, two words each."""
        if not self.start:
            raise CommandError("ERR syntax error, expected IDS keyword")
        return id_words(arguments, self.start, self.start + self.count)


def xnack(call: Call) -> None:
    """XNACK key group SILENT|FAIL|FATAL IDS n id [id …] [RETRYCOUNT c] [FORCE] → how many were
    released. Anyone may release anyone's entries; XSETTLE asks who owns them."""
    arguments = call.arguments
    stream, group = pending_group(call)
    mode = arguments.token(3)
    if mode not in RELEASES:
        raise CommandError("ERR mode must be SILENT, FAIL, or FATAL")
    block, retry_count, force = _IDs(), -1, False
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
    """What XNACK tells the group: ``(ms, seq, count)`` of each id that is pending, or with ``force``
    at least in the stream. An id that is named twice is released twice."""
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
        _add_record(records, ms, seq, count)
    return records


def _add_record(records: array[int], ms: int, seq: int, count: int) -> None:
    push_id(records, ms, seq)
    push_word(records, count)


def released_count(count: int, mode: bytes) -> int:
    """The delivery count after a release: SILENT takes one back, FATAL sets the greatest."""
    if mode == b"FATAL":
        return MAX_DELIVERY_COUNT
    return max(0, count - 1) if mode == b"SILENT" else count


def xrenew(call: Call) -> None:
    """XRENEW key group consumer [IDLE ms] IDS n id [id …] → an array of 1 (still owned, delivery
    time now - ms) and 0 (owned by somebody else or not pending). Counts stay."""
    arguments = call.arguments
    stream, group = pending_group(call)
    block, idle_ms = _IDs(), 0
    index = 4
    while index < arguments.count:
        more = index + 1 < arguments.count
        if more and arguments.is_word(index, b"IDS"):
            index = block.take(arguments, index)
        elif more and arguments.is_word(index, b"IDLE"):
            idle_ms = arguments.integer(index + 1)
            if idle_ms < 0:
                raise CommandError("ERR IDLE must be >= 0")
            index += 2
        else:
            raise CommandError(SYNTAX)
    ids = block.parse(arguments)
    consumer = group.consumers.get(arguments.bytes(3))
    time = max(0, call.now_ms - idle_ms)
    flags = _owned(group, consumer, ids)
    records = array("Q")
    for number in range(len(flags)):
        if flags[number]:
            ms, seq = word_at(ids, 2 * number), word_at(ids, 2 * number + 1)
            _add_record(records, ms, seq, time)
            push_word(records, group.pel.delivery_count(group.pel.find(ms, seq)))
    if len(records) and consumer is not None:
        call.admit(HEADROOM + len(records) * records.itemsize)
        group.own(consumer, records, call.now_ms, consumer.active_time)
        call.keyspace.dirty += len(records) // 4
        if idle_ms:
            stream.db.signal(stream.key)  # it may be idle enough for who waits with CLAIM
    _write_flags(call, flags)


def _owned(group: ConsumerGroup, consumer: GroupConsumer | None, ids: array[int]) -> bytearray:
    """For each id 1 if it is pending under exactly this consumer, else 0."""
    flags = bytearray(len(ids) // 2)
    for number in range(len(flags)):
        flags[number] = group.owns(consumer, word_at(ids, 2 * number), word_at(ids, 2 * number + 1))
    return flags


def _write_flags(call: Call, flags: bytearray) -> None:
    reply = call.reply
    reply.array(len(flags))
    for number in range(len(flags)):
        reply.integer(flags[number])


class _Settlement:
    """An XSETTLE, parsed."""

    def __init__(self, arguments: Arguments) -> None:
        self.mode = arguments.token(4)
        if self.mode not in (b"ACK", b"ACKDEL", *RELEASES):
            raise CommandError("ERR mode must be ACK, ACKDEL, SILENT, FAIL, or FATAL")
        self.delay_ms = -1
        self.references = b""
        self.additions: list[AddRequest] = []
        block = _IDs()
        index = 5
        while index < arguments.count:
            more = index + 1 < arguments.count
            if more and arguments.is_word(index, b"IDS"):
                index = block.take(arguments, index)
            elif more and self._delays() and arguments.is_word(index, b"DELAY"):
                self.delay_ms = arguments.integer(index + 1)
                if self.delay_ms < 0:
                    raise CommandError("ERR DELAY must be >= 0")
                index += 2
            elif more and arguments.is_word(index, b"TO"):
                index = self._addition(arguments, index + 1)
            elif self._deletes() and arguments.token(index) in REFERENCE_MODES:
                self.references = arguments.token(index)
                index += 1
            else:
                raise CommandError(SYNTAX)
        self.ids = block.parse(arguments)

    def _delays(self) -> bool:
        """Whether this mode takes a DELAY."""
        return self.mode in (b"SILENT", b"FAIL")

    def _deletes(self) -> bool:
        """Whether this mode takes KEEPREF, DELREF or ACKED, once."""
        return self.mode == b"ACKDEL" and not self.references

    def _addition(self, arguments: Arguments, index: int) -> int:
        """``dest [MAXLEN|MINID [=|~] t] <*|id> FIELDS m f v …``; the index behind it."""
        addition = AddRequest(arguments.bytes(index))
        index += 1
        if index < arguments.count and arguments.token(index) in (b"MAXLEN", b"MINID"):
            index = addition.take_trim(arguments, index)
        if index + 2 >= arguments.count or arguments.token(index + 1) != b"FIELDS":
            raise CommandError(SYNTAX)
        addition.take_id(arguments, index)
        pairs = arguments.integer(index + 2, error="ERR FIELDS must be a positive integer")
        start = index + 3
        if pairs < 1:
            raise CommandError("ERR FIELDS must be a positive integer")
        if pairs * 2 > arguments.count - start:
            raise CommandError("ERR number of fields and values doesn't match FIELDS")
        addition.check_id()
        addition.take_fields(arguments, start, start + pairs * 2)
        self.additions.append(addition)
        return start + pairs * 2

    def choose_ids(self, call: Call) -> None:
        """The ids of the new entries, each TO seeing those before it; raises as XADD does."""
        last: dict[bytes, tuple[int, int]] = {}
        for addition in self.additions:
            addition.check(call.settings)
            stream = call.stream(addition.key)
            before = last.get(addition.key, stream.last_id if stream is not None else (0, 0))
            addition.choose_id(*before, call.wall_ms())
            last[addition.key] = addition.ms, addition.seq

    def fact_bytes(self, call: Call, stream: StoredStream) -> int:
        size = removal_bytes(stream, len(self.ids) // 2) + 16 * len(self.ids)
        return size + sum(a.fact_bytes(call.stream(a.key)) for a in self.additions)


def xsettle(call: Call) -> None:
    """XSETTLE key group consumer <ACK | ACKDEL [KEEPREF|DELREF|ACKED] | SILENT | FAIL | FATAL>
    [DELAY ms] IDS n id [id …] [TO dest [MAXLEN|MINID [=|~] t] <*|id> FIELDS m f v [f v …]] …
    → [[1|0 …], [new id …]].

    Ends deliveries that ``consumer`` still owns, and with TO publishes in the same step or not at
    all. An id that is named twice is not owned the second time.
    """
    arguments = call.arguments
    stream, group = pending_group(call)
    settlement = _Settlement(arguments)
    consumer = group.consumers.get(arguments.bytes(3))
    flags = _owned(group, consumer, settlement.ids)
    ids = _chosen(settlement.ids, flags)
    if settlement.additions and not all(flags):
        _answer(call, bytearray(len(flags)), [])
        return
    settlement.choose_ids(call)
    if len(ids):
        call.admit(settlement.fact_bytes(call, stream))
        for addition in settlement.additions:
            addition.add(call, call.stream(addition.key))
        _settle(call, stream, group, ids, settlement)
    _answer(call, flags, settlement.additions)


def _chosen(ids: array[int], flags: bytearray) -> array[int]:
    """The ids that are flagged, each once; the flag of one that was named before is taken back."""
    if distinct(ids) is not ids:
        named: set[tuple[int, int]] = set()
        for number, pair in enumerate(id_pairs(ids)):
            if pair in named:
                flags[number] = 0
            named.add(pair)
    if flags.count(1) == len(flags):
        return ids
    chosen = array("Q")
    for number in range(len(flags)):
        if flags[number]:
            push_id(chosen, word_at(ids, 2 * number), word_at(ids, 2 * number + 1))
    return chosen


def _settle(
    call: Call,
    stream: StoredStream,
    group: ConsumerGroup,
    ids: array[int],
    settlement: _Settlement,
) -> None:
    """End the deliveries of ``ids``, which the consumer owns."""
    mode = settlement.mode
    if mode == b"ACKDEL":
        acknowledge_and_delete(call, stream, group, id_pairs(ids), settlement.references or KEEPREF)
        return
    # A TO with DELREF-like trimming does not exist, so what was owned is owned still.
    call.keyspace.dirty += len(ids) // 2
    if mode == b"ACK":
        group.acknowledge(ids)
        return
    if settlement.delay_ms == 0:
        ids = flat_words(sorted(id_pairs(ids)))  # due at once, and what is due goes by id
    delays = settlement.delay_ms > 0
    records = array("Q")
    for base in range(0, len(ids), 2):
        ms, seq = word_at(ids, base), word_at(ids, base + 1)
        count = released_count(group.pel.delivery_count(group.pel.find(ms, seq)), mode)
        if delays:
            due = settlement.delay_ms
            due += call.now_ms  # of 64 bits without a sign, like the record
            _add_record(records, ms, seq, due)
            push_word(records, count)
        else:
            _add_record(records, ms, seq, count)
    if delays:
        group.delay(records)
    else:
        group.release(records)


def _answer(call: Call, flags: bytearray, additions: list[AddRequest]) -> None:
    reply = call.reply
    reply.array(2)
    _write_flags(call, flags)
    reply.array(len(additions))
    for addition in additions:
        reply.id(addition.ms, addition.seq)
