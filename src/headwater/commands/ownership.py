"""XCLAIM, XAUTOCLAIM, XPENDING: who owns what is pending.

Source: Redis's command pages and t_stream.c (xclaimCommand, xautoclaimCommand, xpendingCommand).
A delayed entry (XSETTLE … DELAY) is too young for every claim until its time has come.
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call, shown
from headwater.commands.delivery import RECORD_BYTES, meet_consumer
from headwater.commands.groups import pending_group
from headwater.commands.ids import range_end, range_start
from headwater.engine.facts import HEADROOM, ID_BYTES
from headwater.engine.group import ConsumerGroup
from headwater.engine.pending import NOBODY, NOWHERE, PendingBlock
from headwater.engine.stream import Stream
from headwater.errors import CommandError
from headwater.limits import MAX_DELIVERY_COUNT
from headwater.resp.arguments import Arguments, parse_id

_DEFAULT_AUTOCLAIM_COUNT = 100
_MAX_AUTOCLAIM_COUNT = (2**63 - 1) // 16


class ClaimOptions:
    """What XCLAIM says behind its ids."""

    def __init__(self, arguments: Arguments, index: int, now_ms: int) -> None:
        self.time = now_ms
        self.count = -1
        self.force = False
        self.justid = False
        self.last_id = (0, 0)
        while index < arguments.count:
            word = arguments.token(index)
            if word in (b"FORCE", b"JUSTID"):
                self.force |= word == b"FORCE"
                self.justid |= word == b"JUSTID"
                index += 1
                continue
            if index + 1 == arguments.count or not self._valued(arguments, index, word, now_ms):
                typed = shown(arguments.bytes(index))
                raise CommandError(f"ERR Unrecognized XCLAIM option '{typed}'")
            index += 2

    def _valued(self, arguments: Arguments, index: int, word: bytes, now_ms: int) -> bool:
        """Read an option with a value; False if there is none of that name."""
        error = f"ERR Invalid {word.decode('latin-1')} option argument for XCLAIM"
        if word == b"IDLE":
            self.time = now_ms - arguments.integer(index + 1, error=error)
        elif word == b"TIME":
            self.time = arguments.integer(index + 1, error=error)
        elif word == b"RETRYCOUNT":
            self.count = max(-1, arguments.integer(index + 1, error=error))
        elif word == b"LASTID":
            self.last_id = arguments.id(index + 1)
        else:
            return False
        if not 0 <= self.time <= now_ms:
            self.time = now_ms
        return True


class _Claims:
    """The outcome of claiming id after id, worked out before anything changes."""

    def __init__(self, call: Call, group: ConsumerGroup, min_idle: int) -> None:
        self.group = group
        self.now_ms = call.now_ms
        self.min_idle = min_idle
        self.records: list[tuple[int, int, int, int]] = []
        self.wires: list[bytes] = []
        self.gone: dict[tuple[int, int], None] = {}
        self._state: dict[tuple[int, int], tuple[int, int]] = {}
        """Delivery time and count of ids that this command has claimed already."""

    def too_young(self, at: int) -> bool:
        """The record at ``at`` may not be claimed yet; released ones always may."""
        pel = self.group.pel
        if pel.owner(at) == NOBODY:
            return pel.id(at) in self.group.delayed
        return self.min_idle > 0 and self.now_ms - pel.time(at) < self.min_idle

    def all_too_young(self, min_time: int) -> bool:
        """No record whose time is ``min_time`` or later may be claimed; that of a released one,
        which always may, is 0."""
        return 0 < self.min_idle > self.now_ms - min_time and min_time > 0

    def claim(self, entry_id: tuple[int, int], options: ClaimOptions) -> None:
        """What XCLAIM does with one id."""
        group = self.group
        at = group.pel.find(*entry_id)
        wire = group.stream.log.get(*entry_id)
        if wire is None:
            if at != NOWHERE:
                self.gone[entry_id] = None
            return
        if entry_id in self._state:
            time, count = self._state[entry_id]
            if self.min_idle and self.now_ms - time < self.min_idle:
                return
        elif at != NOWHERE:
            if self.too_young(at):
                return
            count = group.pel.delivery_count(at)
        elif options.force:
            count = 1
        else:
            return
        self.take(entry_id, wire, options.time, _claimed_count(count, options))

    def take(self, entry_id: tuple[int, int], wire: bytes, time: int, count: int) -> None:
        self.records.append((*entry_id, time, count))
        self.wires.append(wire)
        self._state[entry_id] = (time, count)

    def fact_bytes(self) -> int:
        return 4 * HEADROOM + len(self.records) * RECORD_BYTES + len(self.gone) * ID_BYTES

    def carry_out(self, call: Call, name: bytes) -> None:
        """Forget what is gone, give the rest to the consumer; admitted before."""
        group = self.group
        consumer = meet_consumer(call, group, name)
        if self.gone:
            group.acknowledge(list(self.gone))
        if self.records:
            group.own(consumer, self.records, self.now_ms, self.now_ms)
        else:
            group.see(consumer, self.now_ms)
        call.keyspace.dirty += len(self.gone) + len(self.records)

    def write(self, call: Call, *, justid: bool) -> None:
        """The claimed entries, or their ids."""
        reply = call.reply
        reply.array(len(self.records))
        for record, wire in zip(self.records, self.wires, strict=True):
            if justid:
                reply.id(record[0], record[1])
            else:
                reply.raw(wire)


def _claimed_count(count: int, options: ClaimOptions) -> int:
    if options.count >= 0:
        return options.count
    return count if options.justid else min(count + 1, MAX_DELIVERY_COUNT)


def xclaim(call: Call) -> None:
    """XCLAIM key group consumer min-idle-time id [id …] [IDLE ms] [TIME unix-ms] [RETRYCOUNT n]
    [FORCE] [JUSTID] [LASTID id] → the claimed entries, or their ids."""
    arguments = call.arguments
    stream, group = pending_group(call)
    min_idle = arguments.integer(4, error="ERR Invalid min-idle-time argument for XCLAIM")
    claims = _Claims(call, group, max(0, min_idle))
    index = 5
    ids: list[tuple[int, int]] = []
    while index < arguments.count:
        found = parse_id(arguments.bytes(index))
        if found is None:
            break
        ids.append(found)
        index += 1
    options = ClaimOptions(arguments, index, call.now_ms)
    for entry_id in ids:
        claims.claim(entry_id, options)
    name = arguments.bytes(3)
    call.admit(claims.fact_bytes() + len(name))
    if options.last_id > group.last_id:
        group.set_id(*options.last_id, group.entries_read)
        # Redis counts it only where no claim carries it along.
        call.keyspace.dirty += not (claims.records or claims.gone)
    claims.carry_out(call, name)
    if claims.records and options.time < call.now_ms:
        stream.db.signal(stream.key)  # it may be idle enough for who waits with CLAIM
    claims.write(call, justid=options.justid)


def xautoclaim(call: Call) -> None:
    """XAUTOCLAIM key group consumer min-idle-time start [COUNT n] [JUSTID] → [cursor, entries or
    ids, ids that were pending and are gone]."""
    arguments = call.arguments
    call.read(arguments.bytes(1))  # before anything is refused, as Redis looks it up
    min_idle = arguments.integer(4, error="ERR Invalid min-idle-time argument for XAUTOCLAIM")
    start = range_start(arguments, 5)
    count, justid = _DEFAULT_AUTOCLAIM_COUNT, False
    index = 6
    while index < arguments.count:
        word = arguments.token(index)
        if word == b"COUNT" and index + 1 < arguments.count:
            count = arguments.integer(index + 1, error="ERR COUNT must be > 0")
            if not 0 < count <= _MAX_AUTOCLAIM_COUNT:
                raise CommandError("ERR COUNT must be > 0")
            index += 2
        elif word == b"JUSTID":
            justid = True
            index += 1
        else:
            raise CommandError(SYNTAX)
    stream, group = pending_group(call, looked_up=True)
    claims = _Claims(call, group, max(0, min_idle))
    factor = call.settings.autoclaim_scan_factor
    cursor = _scan(claims, stream, start, count, count * factor if factor else -1, justid=justid)
    name = arguments.bytes(3)
    call.admit(claims.fact_bytes() + len(name))
    claims.carry_out(call, name)
    reply = call.reply
    reply.array(3)
    reply.id(*cursor)
    claims.write(call, justid=justid)
    reply.array(len(claims.gone))
    for entry_id in claims.gone:
        reply.id(*entry_id)


def _scan(
    claims: _Claims,
    stream: Stream,
    start: tuple[int, int],
    count: int,
    attempts: int,
    *,
    justid: bool,
) -> tuple[int, int]:
    """Go through the pending list by id from ``start`` until ``count`` records were claimed or
    found gone, or ``attempts`` were looked at (-1: no bound); the id to go on from, (0, 0) at the
    end. A block that holds nothing for us costs one comparison, its records count as looked at."""
    pel = claims.group.pel
    at = pel.seek(*start)
    inside = -1
    while at != NOWHERE and attempts != 0 and count:
        number, block = pel.block_at(at)
        if number != inside and _passes_over(claims, stream, block):
            left = block.count() - pel.index_in_block(at)
            if 0 <= attempts < left:
                at += attempts
                break
            attempts -= left if attempts > 0 else 0
            at = pel.block_start(number + 1)
            continue
        inside = number
        attempts -= 1 if attempts > 0 else 0
        entry_id = pel.id(at)
        wire = stream.log.get(*entry_id)
        if wire is None:
            claims.gone[entry_id] = None
            count -= 1
        elif not claims.too_young(at):
            deliveries = pel.delivery_count(at)
            if not justid:
                deliveries = min(deliveries + 1, MAX_DELIVERY_COUNT)
            claims.take(entry_id, wire, claims.now_ms, deliveries)
            count -= 1
        at = pel.after(at)
    return pel.id(at) if at != NOWHERE else (0, 0)


def _passes_over(claims: _Claims, stream: Stream, block: PendingBlock) -> bool:
    """Nothing in ``block`` is idle enough, and no entry of it can be gone."""
    if not claims.all_too_young(block.min_time):
        block.settle_min_time()
        if not claims.all_too_young(block.min_time):
            return False
    return (block.words[0], block.words[1]) > stream.max_gone_id


def xpending(call: Call) -> None:
    """XPENDING key group → summary; XPENDING key group [IDLE ms] start end count [consumer] → rows
    ``[id, consumer, idle ms, deliveries]``."""
    arguments = call.arguments
    if arguments.count == 3:
        _, group = pending_group(call)
        _summary(call, group)
        return
    if not 6 <= arguments.count <= 9:
        raise CommandError(SYNTAX)
    min_idle, index = 0, 3
    if arguments.token(3) == b"IDLE":
        min_idle = arguments.integer(4)
        if arguments.count < 8:
            raise CommandError(SYNTAX)
        index = 5
    count = arguments.integer(index + 2)
    start, end = range_start(arguments, index), range_end(arguments, index + 1)
    name = arguments.bytes(index + 3) if index + 3 < arguments.count else None
    _, group = pending_group(call)
    delivered_by = call.now_ms - min_idle if min_idle > 0 else None
    rows = _rows(group, start, end, count, name, delivered_by)
    call.reply.array(len(rows))
    for at in rows:
        _write_row(call, group, at)


def _summary(call: Call, group: ConsumerGroup) -> None:
    reply, pel = call.reply, group.pel
    reply.array(4)
    reply.integer(len(pel))
    if not len(pel):
        reply.nil()
        reply.nil()
        reply.nil_array()
        return
    reply.id(*pel.first())
    reply.id(*pel.last())
    owners = [consumer for consumer in group.sorted_consumers() if consumer.pending]
    reply.array(len(owners))
    for consumer in owners:
        reply.array(2)
        reply.bulk(consumer.name)
        reply.bulk(b"%d" % consumer.pending)


def _rows(
    group: ConsumerGroup,
    start: tuple[int, int],
    end: tuple[int, int],
    count: int,
    name: bytes | None,
    delivered_by: int | None,
) -> list[int]:
    """Positions of the records from ``start`` to ``end`` that were delivered by ``delivered_by``
    (Unix ms, None: whenever) or are unowned, of one consumer or of all."""
    pel = group.pel
    found: list[int] = []
    consumer = None if name is None else group.consumers.get(name)
    if count <= 0 or (name is not None and consumer is None):
        return found
    at = pel.seek(*start)
    while len(found) < count:
        if consumer is not None:
            at = pel.owned_from(at, consumer.cid)
        elif delivered_by is not None:
            at = pel.delivered_from(at, delivered_by)
        if at == NOWHERE or pel.id(at) > end:
            break
        if delivered_by is None or pel.owner(at) == NOBODY or pel.time(at) <= delivered_by:
            found.append(at)
        at = pel.after(at)
    return found


def _write_row(call: Call, group: ConsumerGroup, at: int) -> None:
    reply, pel = call.reply, group.pel
    owner = group.consumer_of(at)
    reply.array(4)
    reply.id(*pel.id(at))
    if owner is None:
        reply.bulk(b"")
        reply.integer(-1)
    else:
        reply.bulk(owner.name)
        reply.integer(max(0, call.now_ms - pel.time(at)))
    reply.integer(pel.delivery_count(at))
