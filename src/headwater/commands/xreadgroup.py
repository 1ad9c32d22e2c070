"""XREADGROUP.

    options ─▶ per stream: type, group, id ─▶ admit ─▶ consumers ─▶ stream by stream: plan, give
                                                                           │ nothing to give
                                                                           ▼
                                                                  Wait (BLOCK) or nil
Rule 1. Every stream, group and id is checked before anything changes.
Rule 2. The blocks on disk that the reads need are opened before anything changes. A request that names a
        stream twice opens all blocks that its reads might need. Blocks that were closed again by the time they
        are needed are read while the request waits.
Rule 3. A command that returns nothing only creates missing consumers and sets seen times. A waiting command
        is run again as a whole when one of its keys is signalled or an entry may be idle enough.

Source: Redis's command page and t_stream.c (xreadCommand).
"""

from __future__ import annotations

from headwater.commands.call import Call, Wait, shown
from headwater.commands.group_reads import GroupDelivery, GroupRead, History
from headwater.commands.xread import ReadLimits, ReadOptions, begin_stream, begin_streams
from headwater.common.model import MAX_U64
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.tier.warming import warm
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter

_GREATER, _DOLLAR, _PLUS = b">$+"

_MEANINGLESS = (
    "ERR The {0} ID is meaningless in the context of XREADGROUP: you want to read the history of "
    "this consumer by specifying a proper ID, or use the > ID to get new messages. The {0} ID would "
    "just return an empty result set."
)


def xreadgroup(call: Call) -> Wait | None:
    """XREADGROUP GROUP group consumer [COUNT n] [MAXCOUNT n] [MAXSIZE bytes] [BLOCK ms]
    [CLAIM min-idle] [NOACK] STREAMS key [key …] id [id …] → new entries (``>``), idle ones (CLAIM),
    or the consumer's pending entries."""
    arguments = call.arguments
    options = ReadOptions()
    options.read(arguments, call.now_ms, True)
    keys = options.keys(arguments)
    reads: list[GroupRead] = []
    claim_ms = options.claim_ms
    for number, key in enumerate(keys):
        group = _group_of(call, key, options)
        at = options.id_at(number)
        if _asks_for_new(arguments, at):
            delivery = GroupDelivery()
            delivery.begin(call, key, group, options.consumer)
            delivery.noack, delivery.claim_ms = options.noack, claim_ms
            reads.append(delivery)
        else:
            claim_ms = -1
            history = History()
            history.begin(call, key, group, options.consumer)
            history.after = (arguments.ms, arguments.seq)
            reads.append(history)
    call.keyspace.hits += options.streams  # Redis looks up each key twice, as in XREAD
    limits = options.limits()
    if options.streams > 1 and len(set(keys)) < options.streams:
        given = _give_in_turn(call, reads, limits)
    else:
        most_bytes = 0 if options.claim_ms >= 0 else call.reply.piece_bytes
        given = _give(call, reads, limits, most_bytes)
    if given:
        return None
    if options.block_ms < 0 or not call.may_block:
        call.reply.nil_array()
        return None
    wait = Wait(keys, options.block_ms, arguments.copy())
    assert options.group is not None
    if claim_ms >= 0:
        times = [read.recheck_at_ms() for read in reads]
        wait.recheck_at_ms = min([due for due in times if due is not None], default=None)
        wait.alike = (claim_ms, options.group)
        return wait
    wait.alike = options.group
    if options.streams == 1:
        wait.group = reads[0].group
    return wait


def _give(call: Call, reads: list[GroupRead], limits: ReadLimits, most_bytes: int) -> bool:
    """Plan all reads, have the journal admit exactly their facts, then carry them out. New entries after the first
    ``most_bytes`` may be left to a tail (0: no tail). Return False, with nothing written, if no read returns
    anything."""
    size, given = 0, []
    for read in reads:
        if read.plan(limits):
            given.append(read)
        size += read.fact_bytes()
    if call.keyspace.sealing.stored_count:
        _warm(call, reads, most_bytes)
    if size:  # 0 for most reads that continue to wait
        call.admit(size)
    for read in reads:
        read.ensure_consumer()
    if len(given) < len(reads):
        for read in reads:
            read.mark_seen()
    if given:
        begin_streams(call.reply, len(given))
        for read in given:
            begin_stream(call.reply, read.key)
            read.give(call.reply)
    return bool(given)


def _give_in_turn(call: Call, reads: list[GroupRead], limits: ReadLimits) -> bool:
    """Carry out the reads as `_give` does, for a request that names a stream twice.

    The second read returns what the first one leaves, so each read is planned after the previous ones were
    carried out, and the number of streams in the reply is known only at the end.
    """
    size, bodies = 0, call.keyspace.sealing.bodies
    for read in reads:
        size += read.most_fact_bytes(limits)
    if call.keyspace.sealing.stored_count:
        _warm_for_turns(call, reads, limits)
    if size:
        call.admit(size)
    may_wait, bodies.may_wait = bodies.may_wait, True
    try:
        return _take_turns(call, reads, limits)
    finally:
        bodies.may_wait = may_wait


def _take_turns(call: Call, reads: list[GroupRead], limits: ReadLimits) -> bool:
    for read in reads:
        read.ensure_consumer()
        read.mark_seen()
    reply = call.reply
    body = ReplyWriter(bytearray(), reply.resp)
    given = 0
    for read in reads:
        if read.plan(limits):
            given += 1
            begin_stream(body, read.key)
            read.give(body)
    if given:
        begin_streams(reply, given)
        reply.raw(body.out)
    return given > 0


def _warm(call: Call, reads: list[GroupRead], most_bytes: int = 0) -> None:
    """Open the blocks that the planned reads need; for new entries only the first ``most_bytes`` (0: all). Raises
    `ColdBlocks` if blocks must be read from disk."""
    missed = [packed for read in reads for packed in read.missed]
    found = [(read.group.stream.log, read.spans()) for read in reads]
    warm(call.keyspace.sealing, found, missed, most_bytes=most_bytes)


def _warm_for_turns(call: Call, reads: list[GroupRead], limits: ReadLimits) -> None:
    """Open all blocks that the reads might need one after the other: the blocks that each read would need if it
    were the only one, with the COUNT of all reads together."""
    for read in reads:
        wide = ReadLimits()
        wide.count = limits.count if limits.count < 0 else limits.count * len(reads)
        wide.maxcount, wide.maxsize = limits.maxcount, limits.maxsize
        read.plan(wide)
    _warm(call, reads)
    for read in reads:
        read.forget()


def _group_of(call: Call, key: bytes, options: ReadOptions) -> ConsumerGroup:
    stream = call.read_stream(key)
    assert options.group is not None
    group = None if stream is None else stream.groups.get(options.group)
    if group is None:
        raise CommandError(
            f"NOGROUP No such key '{shown(key)}' or consumer group "
            f"'{shown(options.group)}' in XREADGROUP with GROUP option"
        )
    return group


def _asks_for_new(arguments: Arguments, at: int) -> bool:
    """Return whether the id is ``>`` or, with the same meaning, the greatest id. Any other id begins a read of the
    history, and is left in ``arguments.ms`` and ``arguments.seq``."""
    if arguments.is_byte(at, _GREATER):
        return True
    if arguments.is_byte(at, _DOLLAR) or arguments.is_byte(at, _PLUS):
        raise CommandError(_MEANINGLESS.format(arguments.bytes(at).decode()))
    arguments.find_id(at, 0)
    return arguments.ms == MAX_U64 and arguments.seq == MAX_U64
