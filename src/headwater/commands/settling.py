"""XACK, XNACK, XRENEW, XSETTLE: how deliveries end, or are held.

Source: Redis's command pages and t_stream.c; docs/guide/streams.md for XRENEW and XSETTLE, which
ask who owns an entry before they do anything to it.
"""

from __future__ import annotations

from headwater.commands.addition import Addition
from headwater.commands.call import SYNTAX, Call, shown
from headwater.commands.deleting import acknowledge_and_delete, removal_bytes
from headwater.commands.groups import pending_group
from headwater.commands.ids import id_list
from headwater.commands.trimming import KEEPREF
from headwater.engine.facts import HEADROOM, ID_BYTES
from headwater.engine.group import ConsumerGroup
from headwater.engine.pending import NOWHERE
from headwater.engine.stream import Stream
from headwater.errors import CommandError
from headwater.limits import MAX_DELIVERY_COUNT
from headwater.resp.arguments import Arguments

RELEASES = (b"SILENT", b"FAIL", b"FATAL")
_MAX_NUMIDS = 2**31 - 1
_NUMIDS = "ERR numids must be a positive integer"
_NUMIDS_MATCH = "ERR number of IDs doesn't match numids"


def xack(call: Call) -> None:
    """XACK key group id [id …] → how many were pending and are no longer."""
    arguments = call.arguments
    stream = call.read_stream(arguments.bytes(1))
    group = None if stream is None else stream.groups.get(arguments.bytes(2))
    if group is None:
        call.reply.integer(0)
        return
    ids = dict.fromkeys(id_list(arguments, 3, arguments.count))
    found = [entry_id for entry_id in ids if group.pel.find(*entry_id) != NOWHERE]
    if found:
        call.admit(HEADROOM + len(found) * ID_BYTES)
        group.acknowledge(found)
        call.keyspace.dirty += len(found)
    call.reply.integer(len(found))


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

    def parse(self, arguments: Arguments) -> list[tuple[int, int]]:
        if not self.start:
            raise CommandError("ERR syntax error, expected IDS keyword")
        return id_list(arguments, self.start, self.start + self.count)


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
        word = arguments.token(index)
        more = index + 1 < arguments.count
        if word == b"IDS" and more:
            index = block.take(arguments, index)
        elif word == b"RETRYCOUNT" and more:
            retry_count = arguments.integer(index + 1)
            if retry_count < 0:
                raise CommandError("ERR Invalid RETRYCOUNT value, must be >= 0")
            index += 2
        elif word == b"FORCE":
            force = True
            index += 1
        else:
            raise CommandError(f"ERR Unrecognized XNACK option '{shown(arguments.bytes(index))}'")
    ids = block.parse(arguments)
    counts: dict[tuple[int, int], int] = {}
    records: list[tuple[int, int, int]] = []
    for entry_id in ids:
        if entry_id not in counts:
            at = group.pel.find(*entry_id)
            if at != NOWHERE:
                counts[entry_id] = group.pel.delivery_count(at)
            elif force and stream.log.contains(*entry_id):
                counts[entry_id] = 0
            else:
                continue
        counts[entry_id] = (
            retry_count if retry_count >= 0 else released_count(counts[entry_id], mode)
        )
        records.append((*entry_id, counts[entry_id]))
    if records:
        call.admit(HEADROOM + len(records) * (ID_BYTES + 8))
        group.release(records)
        call.keyspace.dirty += len(records)
    call.reply.integer(len(records))


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
        word = arguments.token(index)
        more = index + 1 < arguments.count
        if word == b"IDS" and more:
            index = block.take(arguments, index)
        elif word == b"IDLE" and more:
            idle_ms = arguments.integer(index + 1)
            if idle_ms < 0:
                raise CommandError("ERR IDLE must be >= 0")
            index += 2
        else:
            raise CommandError(SYNTAX)
    ids = block.parse(arguments)
    consumer = group.consumers.get(arguments.bytes(3))
    time = max(0, call.now_ms - idle_ms)
    flags = [int(group.owns(consumer, *entry_id)) for entry_id in ids]
    records = [
        (*entry_id, time, group.pel.delivery_count(group.pel.find(*entry_id)))
        for entry_id, flag in zip(ids, flags, strict=True)
        if flag
    ]
    if records and consumer is not None:
        call.admit(HEADROOM + 32 * len(records))
        group.own(consumer, records, call.now_ms, consumer.active_time)
        call.keyspace.dirty += len(records)
        if idle_ms:
            stream.db.signal(stream.key)  # it may be idle enough for who waits with CLAIM
    call.reply.array(len(flags))
    for flag in flags:
        call.reply.integer(flag)


class _Settlement:
    """An XSETTLE, parsed."""

    def __init__(self, arguments: Arguments) -> None:
        self.mode = arguments.token(4)
        if self.mode not in (b"ACK", b"ACKDEL", *RELEASES):
            raise CommandError("ERR mode must be ACK, ACKDEL, SILENT, FAIL, or FATAL")
        self.delay_ms = -1
        self.additions: list[Addition] = []
        block = _IDs()
        index = 5
        while index < arguments.count:
            word = arguments.token(index)
            more = index + 1 < arguments.count
            if word == b"DELAY" and more and self.mode in (b"SILENT", b"FAIL"):
                self.delay_ms = arguments.integer(index + 1)
                if self.delay_ms < 0:
                    raise CommandError("ERR DELAY must be >= 0")
                index += 2
            elif word == b"IDS" and more:
                index = block.take(arguments, index)
            elif word == b"TO" and more:
                index = self._addition(arguments, index + 1)
            else:
                raise CommandError(SYNTAX)
        self.ids = block.parse(arguments)

    def _addition(self, arguments: Arguments, index: int) -> int:
        """``dest [MAXLEN|MINID [=|~] t] <*|id> FIELDS m f v …``; the index behind it."""
        addition = Addition(arguments.bytes(index))
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
            addition.check(call.settings.node_max_entries)
            stream = call.stream(addition.key)
            before = last.get(addition.key, stream.last_id if stream is not None else (0, 0))
            addition.choose_id(*before, call.now_ms)
            last[addition.key] = addition.ms, addition.seq

    def fact_bytes(self, call: Call, stream: Stream) -> int:
        size = removal_bytes(stream, len(self.ids)) + 32 * len(self.ids)
        return size + sum(a.fact_bytes(call.stream(a.key)) for a in self.additions)


def xsettle(call: Call) -> None:
    """XSETTLE key group consumer <ACK|ACKDEL|SILENT|FAIL|FATAL> [DELAY ms] IDS n id [id …]
    [TO dest [MAXLEN|MINID [=|~] t] <*|id> FIELDS m f v [f v …]] … → [[1|0 …], [new id …]].

    Ends deliveries that ``consumer`` still owns, and with TO publishes in the same step or not at
    all.
    """
    arguments = call.arguments
    stream, group = pending_group(call)
    settlement = _Settlement(arguments)
    consumer = group.consumers.get(arguments.bytes(3))
    owned = [group.owns(consumer, *entry_id) for entry_id in settlement.ids]
    if settlement.additions and not all(owned):
        _answer(call, [0] * len(owned), [])
        return
    ids = dict.fromkeys(i for i, own in zip(settlement.ids, owned, strict=True) if own)
    settlement.choose_ids(call)
    if ids:
        call.admit(settlement.fact_bytes(call, stream))
        for addition in settlement.additions:
            addition.add(call, call.stream(addition.key))
        _settle(call, stream, group, list(ids), settlement)
    flags = []
    for entry_id in settlement.ids:
        flags.append(int(entry_id in ids))
        ids.pop(entry_id, None)
    _answer(call, flags, [(addition.ms, addition.seq) for addition in settlement.additions])


def _settle(
    call: Call,
    stream: Stream,
    group: ConsumerGroup,
    ids: list[tuple[int, int]],
    settlement: _Settlement,
) -> None:
    """End the deliveries of ``ids``, which the consumer owns."""
    mode = settlement.mode
    if mode == b"ACKDEL":
        acknowledge_and_delete(call, stream, group, ids, KEEPREF)
        return
    # A TO with DELREF-like trimming does not exist, so what was owned is owned still.
    call.keyspace.dirty += len(ids)
    if mode == b"ACK":
        group.acknowledge(ids)
        return
    if settlement.delay_ms == 0:
        ids.sort()  # due at once, and what is due goes by id
    counts = [released_count(group.pel.delivery_count(group.pel.find(*i)), mode) for i in ids]
    if settlement.delay_ms > 0:
        due = call.now_ms + settlement.delay_ms
        group.delay([(*i, due, count) for i, count in zip(ids, counts, strict=True)])
    else:
        group.release([(*i, count) for i, count in zip(ids, counts, strict=True)])


def _answer(call: Call, flags: list[int], new_ids: list[tuple[int, int]]) -> None:
    reply = call.reply
    reply.array(2)
    reply.array(len(flags))
    for flag in flags:
        reply.integer(flag)
    reply.array(len(new_ids))
    for new_id in new_ids:
        reply.id(*new_id)
