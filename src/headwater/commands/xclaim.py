"""XCLAIM and XAUTOCLAIM: take over pending entries for a consumer.

A delayed entry (XSETTLE … DELAY) cannot be claimed before its due time.

Source: Redis's command pages and t_stream.c (xclaimCommand, xautoclaimCommand).
"""

from __future__ import annotations

from array import array

from headwater.commands.call import SYNTAX, Call, shown
from headwater.commands.group_reads import RECORD_BYTES, counted_once_more, ensure_consumer
from headwater.commands.ids import range_start
from headwater.commands.xgroup import pending_group
from headwater.common.limits import MAX_DELIVERY_COUNT
from headwater.common.model import flat_words
from headwater.engine.bodies.sealed_block import SealedBlock
from headwater.engine.facts.facts import HEADROOM, ID_BYTES
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending_block import PendingBlock
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments, parse_id

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import push_id, push_word, word_at

_DEFAULT_AUTOCLAIM_COUNT = 100
_MAX_AUTOCLAIM_COUNT = (2**63 - 1) // 16
_INVALID = "ERR Invalid {} option argument for XCLAIM"


class ClaimOptions:
    """The options after the ids of XCLAIM."""

    def __init__(self, call: Call, arguments: Arguments, index: int) -> None:
        self.time = call.now_ms
        self.count = -1
        self.force = False
        self.justid = False
        self.last_id = (0, 0)
        while index < arguments.count:
            if arguments.is_word(index, b"JUSTID"):
                self.justid = True
                index += 1
            elif arguments.is_word(index, b"FORCE"):
                self.force = True
                index += 1
            elif index + 1 < arguments.count and self._valued(call, arguments, index):
                index += 2
            else:
                typed = shown(arguments.bytes(index))
                raise CommandError(f"ERR Unrecognized XCLAIM option '{typed}'")

    def _valued(self, call: Call, arguments: Arguments, index: int) -> bool:
        """Parse an option with a value. Return False if the argument is not such an option."""
        if arguments.is_word(index, b"IDLE"):
            idle = arguments.integer(index + 1, error=_INVALID.format("IDLE"))
            self.time = call.now_ms - idle if idle >= 0 else call.now_ms
        elif arguments.is_word(index, b"TIME"):
            time = arguments.integer(index + 1, error=_INVALID.format("TIME"))
            self.time = call.wall.steady_ms(time) if time >= 0 else call.now_ms
        elif arguments.is_word(index, b"RETRYCOUNT"):
            self.count = max(-1, arguments.integer(index + 1, error=_INVALID.format("RETRYCOUNT")))
        elif arguments.is_word(index, b"LASTID"):
            self.last_id = arguments.id(index + 1)
        else:
            return False
        if not 0 <= self.time <= call.now_ms:
            self.time = call.now_ms
        return True


class _Claims:
    """The entries that a command claims. They are found before anything changes."""

    def __init__(self, call: Call, group: ConsumerGroup, min_idle: int) -> None:
        self.group = group
        self.now_ms = call.now_ms
        self.min_idle = min_idle
        self.records = array("Q")
        """The claimed entries, in the form of records for `ConsumerGroup.own`."""
        self.wires: list[bytes] = []
        """The claimed entries, encoded for the reply."""
        self.missed: list[SealedBlock] = []
        """Blocks on disk that contain claimed entries."""
        self.gone: dict[tuple[int, int], None] = {}
        """Ids of pending entries that the stream no longer has."""

    def idle_enough(self, time: int) -> bool:
        """Return whether an entry that was delivered at ``time`` has been idle for long enough."""
        return self.min_idle == 0 or self.now_ms - time >= self.min_idle

    def too_young(self, at: int) -> bool:
        """Return whether the record at ``at`` may not be claimed yet. A released record may always be claimed."""
        pel = self.group.pel
        if pel.owner(at):
            return not self.idle_enough(pel.time(at))
        return pel.time(at) > 0  # the due time of a delayed entry; 0 for a released one

    def all_too_young(self, min_time: int) -> bool:
        """Return whether no record with a time of at least ``min_time`` may be claimed. Released records, which
        may always be claimed, have the time 0."""
        return min_time > 0 and not self.idle_enough(min_time)

    def wire_of(self, ms: int, seq: int, justid: bool) -> bytes | None:
        """Return the entry, encoded for the reply (any bytes with ``justid``); None if the stream no longer has it."""
        log = self.group.stream.log
        if justid:
            return b"" if log.contains(ms, seq) else None
        return log.gather(ms, seq, self.missed)

    def warm(self, call: Call) -> None:
        """Raise `ColdBlocks` if claimed entries are on disk."""
        if self.missed:
            call.keyspace.sealing.bodies.hold({}, self.missed)

    def take(self, ms: int, seq: int, wire: bytes, time: int, count: int) -> None:
        """Add an entry to the claims, with its new delivery time and count."""
        push_id(self.records, ms, seq)
        push_word(self.records, time)
        push_word(self.records, count)
        self.wires.append(wire)

    def fact_bytes(self) -> int:
        """Return an upper bound for the facts of `carry_out`, in bytes, without the consumer's name."""
        return 4 * HEADROOM + len(self.wires) * RECORD_BYTES + len(self.gone) * ID_BYTES

    def carry_out(self, call: Call, name: bytes) -> None:
        """Acknowledge the entries that are gone, and give the claimed ones to the consumer. The caller must have
        called `Call.admit`."""
        group = self.group
        consumer = ensure_consumer(call, group, name)
        if self.gone:
            group.acknowledge(flat_words(self.gone))
        if self.wires:
            group.own(consumer, self.records, self.now_ms, self.now_ms)
        else:
            group.see(consumer, self.now_ms)
        call.keyspace.dirty += len(self.gone) + len(self.wires)

    def write(self, call: Call, justid: bool) -> None:
        """Write the claimed entries; with ``justid`` only their ids."""
        reply, records = call.reply, self.records
        reply.array(len(self.wires))
        for number, wire in enumerate(self.wires):
            if justid:
                reply.id(word_at(records, 4 * number), word_at(records, 4 * number + 1))
            else:
                reply.raw(wire)


class _NamedClaims(_Claims):
    """The claims of XCLAIM. The request may name an id more than once."""

    def __init__(self, call: Call, group: ConsumerGroup, min_idle: int) -> None:
        _Claims.__init__(self, call, group, min_idle)
        self._claimed: dict[tuple[int, int], tuple[int, int]] = {}
        """Id that this command has already claimed → its new delivery time and count."""

    def claim(self, ms: int, seq: int, options: ClaimOptions) -> None:
        """Claim one id of XCLAIM if it may be claimed."""
        group, entry_id = self.group, (ms, seq)
        at = group.pel.find(ms, seq)
        wire = self.wire_of(ms, seq, options.justid)
        if wire is None:
            if at >= 0:
                self.gone[entry_id] = None
            return
        claimed = self._claimed.get(entry_id)
        if claimed is not None:
            if not self.idle_enough(claimed[0]):
                return
            count = claimed[1]
        elif at >= 0:
            if self.too_young(at):
                return
            count = group.pel.delivery_count(at)
        elif options.force:
            count = 1
        else:
            return
        count = _claimed_count(count, options)
        self.take(ms, seq, wire, options.time, count)
        self._claimed[entry_id] = (options.time, count)


def _claimed_count(count: int, options: ClaimOptions) -> int:
    if options.count >= 0:
        return options.count
    return count if options.justid else counted_once_more(count)


def xclaim(call: Call) -> None:
    """XCLAIM key group consumer min-idle-time id [id …] [IDLE ms] [TIME unix-ms] [RETRYCOUNT n]
    [FORCE] [JUSTID] [LASTID id] → the claimed entries, or their ids."""
    arguments = call.arguments
    stream, group = pending_group(call)
    min_idle = arguments.integer(4, error="ERR Invalid min-idle-time argument for XCLAIM")
    claims = _NamedClaims(call, group, max(0, min_idle))
    index = 5
    ids = array("Q")
    while index < arguments.count:
        found = parse_id(arguments.bytes(index))
        if found is None:
            break
        push_id(ids, found[0], found[1])
        index += 1
    options = ClaimOptions(call, arguments, index)
    for base in range(0, len(ids), 2):
        claims.claim(word_at(ids, base), word_at(ids, base + 1), options)
    claims.warm(call)
    name = arguments.bytes(3)
    call.admit(claims.fact_bytes() + len(name))
    if options.last_id > group.last_id:
        group.set_id(options.last_id[0], options.last_id[1], group.entries_read)
        if not claims.wires and not claims.gone:
            call.keyspace.dirty += 1  # Redis counts LASTID only if nothing was claimed
    claims.carry_out(call, name)
    if claims.wires and options.time < call.now_ms:
        stream.db.signal(stream.key)  # an entry may now be idle enough for a waiting CLAIM
    claims.write(call, options.justid)


def xautoclaim(call: Call) -> None:
    """XAUTOCLAIM key group consumer min-idle-time start [COUNT n] [JUSTID] → [cursor, claimed entries or
    ids, ids of pending entries that no longer exist]."""
    arguments = call.arguments
    call.read(arguments.bytes(1))  # before any error, as in Redis
    min_idle = arguments.integer(4, error="ERR Invalid min-idle-time argument for XAUTOCLAIM")
    start = range_start(arguments, 5)
    count, justid = _DEFAULT_AUTOCLAIM_COUNT, False
    index = 6
    while index < arguments.count:
        if index + 1 < arguments.count and arguments.is_word(index, b"COUNT"):
            count = arguments.integer(index + 1, error="ERR COUNT must be > 0")
            if not 0 < count <= _MAX_AUTOCLAIM_COUNT:
                raise CommandError("ERR COUNT must be > 0")
            index += 2
        elif arguments.is_word(index, b"JUSTID"):
            justid = True
            index += 1
        else:
            raise CommandError(SYNTAX)
    stream, group = pending_group(call, looked_up=True)
    claims = _Claims(call, group, max(0, min_idle))
    scan = _Scan(claims, stream, count, call.settings.autoclaim_scan_factor, justid)
    cursor = scan.run(start)
    claims.warm(call)
    name = arguments.bytes(3)
    call.admit(claims.fact_bytes() + len(name))
    claims.carry_out(call, name)
    reply = call.reply
    reply.array(3)
    reply.id(cursor[0], cursor[1])
    claims.write(call, justid)
    reply.array(len(claims.gone))
    for entry_id in claims.gone:
        reply.id(entry_id[0], entry_id[1])


class _Scan:
    """The scan of the pending list by XAUTOCLAIM, in the order of ids.

    It ends when ``count`` records were claimed or found gone, or when ``factor`` times ``count`` records were
    examined (0: no limit). A block without a claimable record costs one comparison; its records count as examined.
    """

    def __init__(
        self, claims: _Claims, stream: StoredStream, count: int, factor: int, justid: bool
    ) -> None:
        self.claims = claims
        self.stream = stream
        self.count = count
        self.most = _most_looked_at(count, factor)
        self.justid = justid

    def run(self, start: tuple[int, int]) -> tuple[int, int]:
        """Scan from ``start`` on. Return the cursor: the next id, or (0, 0) at the end of the list."""
        pel = self.claims.group.pel
        at = pel.seek(start[0], start[1])
        while at >= 0 and self.most > 0 and self.count > 0:
            at = self._through_block(at)
        return pel.id(at) if at >= 0 else (0, 0)

    def _through_block(self, at: int) -> int:
        """Scan from ``at`` to the end of its block, or until a limit is reached. Return the next position; negative at
        the end of the list."""
        pel = self.claims.group.pel
        block = pel.block_at(at)
        left = block.end - pel.number_in_block(at)
        if self._passes_over(block):
            if self.most < left:
                at += self.most
                self.most = 0
                return at
            self.most -= left
        else:
            whole, gone = left == block.end - block.head, len(self.claims.gone)
            while left > 0 and self.most > 0 and self.count > 0:
                self._look_at(at)
                self.most -= 1
                left -= 1
                at += 1
            if left:
                return at
            if whole and len(self.claims.gone) == gone:
                block.dangling = False
            at -= 1
        return pel.block_start(pel.number_of(at) + 1)

    def _look_at(self, at: int) -> None:
        """Claim the record at ``at``, note that its entry is gone, or skip it."""
        claims, pel = self.claims, self.claims.group.pel
        ms, seq = pel.ms(at), pel.seq(at)
        wire = claims.wire_of(ms, seq, self.justid)
        if wire is None:
            claims.gone[ms, seq] = None
            self.count -= 1
        elif not claims.too_young(at):
            deliveries = pel.delivery_count(at)
            if not self.justid:
                deliveries = counted_once_more(deliveries)
            claims.take(ms, seq, wire, claims.now_ms, deliveries)
            self.count -= 1

    def _passes_over(self, block: PendingBlock) -> bool:
        """Return whether no record of ``block`` is idle enough, and none of its entries can be gone."""
        if not self.claims.all_too_young(block.min_time):
            block.settle_min_time()
            if not self.claims.all_too_young(block.min_time):
                return False
        trimmed = self.stream.max_trimmed_id
        return not block.dangling and block.begins_after(trimmed[0], trimmed[1])


def _most_looked_at(count: int, factor: int) -> int:
    return min(count * factor, MAX_DELIVERY_COUNT) if factor else MAX_DELIVERY_COUNT
