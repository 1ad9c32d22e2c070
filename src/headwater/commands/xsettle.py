"""XSETTLE and XRENEW: end deliveries, or renew their lease, if the consumer still owns them.

Source: docs/guide/streams.md.
"""

from __future__ import annotations

from array import array

from headwater.commands.call import SYNTAX, Call
from headwater.commands.ids import IDBlock, distinct
from headwater.commands.xack import RELEASES, released_count
from headwater.commands.xadd import AddRequest
from headwater.commands.xdel import acknowledge_and_delete, removal_bytes
from headwater.commands.xgroup import pending_group
from headwater.commands.xtrim import KEEPREF, REFERENCE_MODES
from headwater.common.limits import MAX_DURATION_MS
from headwater.common.model import flat_words, id_pairs
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.groups.consumer import GroupConsumer
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import push_id, push_word, word_at


def xrenew(call: Call) -> None:
    """XRENEW key group consumer [IDLE ms] IDS n id [id …] → an array with, for each id, 1 if the consumer still owns it
    (its delivery time becomes now - ms), otherwise 0. Delivery counts do not change."""
    arguments = call.arguments
    stream, group = pending_group(call)
    block, idle_ms = IDBlock(), 0
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
    flags = _settleable(group, consumer, ids, False)
    records = array("Q")
    for number in range(len(flags)):
        if flags[number]:
            ms, seq = word_at(ids, 2 * number), word_at(ids, 2 * number + 1)
            push_id(records, ms, seq)
            push_word(records, time)
            push_word(records, group.pel.delivery_count(group.pel.find(ms, seq)))
    if len(records) and consumer is not None:
        call.admit(HEADROOM + len(records) * records.itemsize)
        group.own(consumer, records, call.now_ms, consumer.active_time)
        call.keyspace.dirty += len(records) // 4
        if idle_ms:
            stream.db.signal(
                stream.key
            )  # the entry may now be idle enough for a client that waits with CLAIM
    _write_flags(call, flags)


def _settleable(
    group: ConsumerGroup, consumer: GroupConsumer | None, ids: array[int], any_owner: bool
) -> bytearray:
    """Return a flag for each id: 1 if ``consumer`` owns it or, with ``any_owner``, if it is pending; otherwise 0."""
    flags = bytearray(len(ids) // 2)
    for number in range(len(flags)):
        ms, seq = word_at(ids, 2 * number), word_at(ids, 2 * number + 1)
        flags[number] = group.pel.find(ms, seq) >= 0 if any_owner else group.owns(consumer, ms, seq)
    return flags


def _write_flags(call: Call, flags: bytearray) -> None:
    reply = call.reply
    reply.array(len(flags))
    for number in range(len(flags)):
        reply.integer(flags[number])


class _Settlement:
    """The parsed arguments of an XSETTLE."""

    def __init__(self, arguments: Arguments) -> None:
        self.mode = arguments.token(4)
        if self.mode not in (b"ACK", b"ACKDEL", *RELEASES):
            raise CommandError("ERR mode must be ACK, ACKDEL, SILENT, FAIL, or FATAL")
        self.delay_ms = -1
        self.references = b""
        self.any_owner = False
        self.additions: list[AddRequest] = []
        block = IDBlock()
        index = 5
        while index < arguments.count:
            more = index + 1 < arguments.count
            if more and arguments.is_word(index, b"IDS"):
                index = block.take(arguments, index)
            elif more and self._delays() and arguments.is_word(index, b"DELAY"):
                self.delay_ms = min(arguments.integer(index + 1), MAX_DURATION_MS)
                if self.delay_ms < 0:
                    raise CommandError("ERR DELAY must be >= 0")
                index += 2
            elif more and arguments.is_word(index, b"TO"):
                index = self._addition(arguments, index + 1)
            elif self._deletes() and arguments.token(index) in REFERENCE_MODES:
                self.references = arguments.token(index)
                index += 1
            elif self.mode in (b"ACK", b"ACKDEL") and arguments.is_word(index, b"ANYOWNER"):
                self.any_owner = True
                index += 1
            else:
                raise CommandError(SYNTAX)
        self.ids = block.parse(arguments)

    def _delays(self) -> bool:
        """Return whether the mode allows DELAY."""
        return self.mode in (b"SILENT", b"FAIL")

    def _deletes(self) -> bool:
        """Return whether the mode allows KEEPREF, DELREF or ACKED, and none of them was given yet."""
        return self.mode == b"ACKDEL" and not self.references

    def _addition(self, arguments: Arguments, index: int) -> int:
        """Parse ``dest [MAXLEN|MINID [=|~] t] <*|id> FIELDS m f v …``. Return the index after it."""
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
        """Choose the ids of the new entries, in the order of the TOs. Raises the errors of XADD."""
        last: dict[bytes, tuple[int, int]] = {}
        for addition in self.additions:
            addition.check(call.settings)
            stream = call.stream(addition.key)
            before = last.get(addition.key, stream.last_id if stream is not None else (0, 0))
            addition.choose_id(*before, call.wall_ms())
            last[addition.key] = addition.ms, addition.seq

    def fact_bytes(self, call: Call, stream: StoredStream) -> int:
        """Return an upper bound for the facts of the settlement, in bytes."""
        size = removal_bytes(stream, len(self.ids) // 2) + 16 * len(self.ids)
        return size + sum(a.fact_bytes(call.stream(a.key)) for a in self.additions)


def xsettle(call: Call) -> None:
    """XSETTLE key group consumer <ACK | ACKDEL [KEEPREF|DELREF|ACKED] | SILENT | FAIL | FATAL>
    [ANYOWNER] [DELAY ms] IDS n id [id …] [TO dest [MAXLEN|MINID [=|~] t] <*|id> FIELDS m f v [f v …]] …
    → [[1|0 …], [new id …]].

    Ends deliveries that ``consumer`` still owns or, with ANYOWNER (only for ACK and ACKDEL), that are still pending
    for any owner. TO adds entries in the same step; with TO, nothing happens if any of the ids cannot be settled.
    An id that is given twice counts as not owned the second time.
    """
    arguments = call.arguments
    stream, group = pending_group(call)
    settlement = _Settlement(arguments)
    consumer = group.consumers.get(arguments.bytes(3))
    flags = _settleable(group, consumer, settlement.ids, settlement.any_owner)
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
    """Return the ids whose flag is set, each once. Clears the flag of a repeated id."""
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
    """End the deliveries of ``ids``. All of them must be settleable (`_settleable`)."""
    mode = settlement.mode
    if mode == b"ACKDEL":
        acknowledge_and_delete(call, stream, group, id_pairs(ids), settlement.references or KEEPREF)
        return
    # The trimming of a TO cannot remove pending entries (it has no DELREF), so the ids are still pending.
    call.keyspace.dirty += len(ids) // 2
    if mode == b"ACK":
        group.acknowledge(ids)
        return
    if settlement.delay_ms == 0:
        ids = flat_words(sorted(id_pairs(ids)))  # due immediately; due entries are ordered by id
    delays = settlement.delay_ms > 0
    records = array("Q")
    for base in range(0, len(ids), 2):
        ms, seq = word_at(ids, base), word_at(ids, base + 1)
        count = released_count(group.pel.delivery_count(group.pel.find(ms, seq)), mode)
        if delays:
            due = settlement.delay_ms
            due += call.now_ms
            push_id(records, ms, seq)
            push_word(records, due)
            push_word(records, count)
        else:
            push_id(records, ms, seq)
            push_word(records, count)
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
