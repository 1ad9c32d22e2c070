"""XREAD and XREADGROUP.

    options ─▶ per stream: type, group, id ─▶ admit ─▶ consumers ─▶ stream by stream: plan, give
                                                                           │ nothing given
                                                                           ▼
                                                                  Wait (BLOCK) or nil
Rule 1. Every stream, group and id is checked before anything changes.
Rule 2. A command that gives nothing changes nothing but consumers that did not exist and seen times;
        one that waits is run again as a whole when a key is signalled.

Source: Redis's command pages and t_stream.c (xreadCommand).
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call, Wait, shown
from headwater.commands.delivery import (
    GroupDelivery,
    GroupRead,
    History,
    NewEntries,
    entries_after,
    newest_entry,
)
from headwater.commands.read_limits import ReadLimits
from headwater.commands.timeouts import milliseconds
from headwater.engine.group import ConsumerGroup
from headwater.errors import CommandError
from headwater.model import MAX_U64
from headwater.resp.arguments import INTEGER_ERROR, Arguments
from headwater.resp.replies import ReplyWriter

_GREATER, _DOLLAR, _PLUS = b">$+"

_UNBALANCED_XREAD = (
    "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be "
    "specified."
)
_UNBALANCED_XREADGROUP = (
    "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be "
    "specified."
)
_ONLY_XREADGROUP = "ERR The {} option is only supported by XREADGROUP. You called XREAD instead."
_ONLY_NEW = (
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> "
    "<consumer> option."
)
_MEANINGLESS = (
    "ERR The {0} ID is meaningless in the context of XREADGROUP: you want to read the history of "
    "this consumer by specifying a proper ID, or use the > ID to get new messages. The {0} ID would "
    "just return an empty result set."
)


class ReadOptions:
    """What stands before STREAMS, and where the keys and ids stand."""

    def __init__(self) -> None:
        self.count = -1
        self.block_ms = -1
        self.claim_ms = -1
        self.maxcount = -1
        self.maxsize = -1
        self.noack = False
        self.group: bytes | None = None
        self.consumer = b""
        self.keys_at = 0
        self.streams = 0
        self._grouped = False
        self._now_ms = 0

    def read(self, arguments: Arguments, now_ms: int, grouped: bool) -> None:
        """Take those of an XREAD, or of an XREADGROUP (``grouped``). Raises `CommandError`."""
        self._grouped, self._now_ms = grouped, now_ms
        index = 1
        while index < arguments.count:
            more = arguments.count - 1 - index
            if more and arguments.is_word(index, b"STREAMS"):
                self._keys(arguments, index + 1)
                break
            index = self._option(arguments, index, more)
        if not self.keys_at:
            raise CommandError(SYNTAX)
        if grouped and self.group is None:
            raise CommandError("ERR Missing GROUP option for XREADGROUP")
        if 0 <= self.maxcount < self.count:
            raise CommandError("ERR MAXCOUNT must be greater than or equal to COUNT")

    def _option(self, arguments: Arguments, index: int, more: int) -> int:
        """Read the option at ``index``, behind which ``more`` arguments stand; the index behind it."""
        if more and arguments.is_word(index, b"COUNT"):
            if not arguments.find_integer(index + 1):
                raise CommandError(INTEGER_ERROR)
            self.count = arguments.number if arguments.number > 0 else -1
            return index + 2
        if more >= 2 and arguments.is_word(index, b"GROUP"):
            self._only_grouped("GROUP")
            self.group, self.consumer = arguments.bytes(index + 1), arguments.bytes(index + 2)
            return index + 3
        if more and arguments.is_word(index, b"BLOCK"):
            self.block_ms = milliseconds(arguments, index + 1, self._now_ms)
            return index + 2
        if more and arguments.is_word(index, b"CLAIM"):
            self._only_grouped("CLAIM")
            if not arguments.find_integer(index + 1):
                raise CommandError("ERR min-idle-time is not an integer or out of range")
            self.claim_ms = arguments.number
            if self.claim_ms < 0:
                raise CommandError("ERR min-idle-time must be a positive integer")
            return index + 2
        if more and arguments.is_word(index, b"MAXCOUNT"):
            self.maxcount = _positive(arguments, index + 1, "MAXCOUNT")
            return index + 2
        if more and arguments.is_word(index, b"MAXSIZE"):
            self.maxsize = _positive(arguments, index + 1, "MAXSIZE")
            return index + 2
        if arguments.is_word(index, b"NOACK"):
            self._only_grouped("NOACK")
            self.noack = True
            return index + 1
        raise CommandError(SYNTAX)

    def _only_grouped(self, word: str) -> None:
        if not self._grouped:
            raise CommandError(_ONLY_XREADGROUP.format(word))

    def _keys(self, arguments: Arguments, start: int) -> None:
        rest = arguments.count - start
        if rest % 2:
            raise CommandError(_UNBALANCED_XREADGROUP if self._grouped else _UNBALANCED_XREAD)
        self.keys_at, self.streams = start, rest // 2

    def limits(self) -> ReadLimits:
        limits = ReadLimits()
        limits.count, limits.maxcount, limits.maxsize = self.count, self.maxcount, self.maxsize
        return limits

    def keys(self, arguments: Arguments) -> list[bytes]:
        return [arguments.bytes(self.keys_at + at) for at in range(self.streams)]

    def id_at(self, stream: int) -> int:
        """Index of the id argument of stream number ``stream``."""
        return self.keys_at + self.streams + stream


def _positive(arguments: Arguments, index: int, option: str) -> int:
    value = arguments.integer(index)
    if value < 1:
        raise CommandError(f"ERR {option} must be a positive integer")
    return value


def xread(call: Call) -> Wait | None:
    """XREAD [COUNT n] [MAXCOUNT n] [MAXSIZE bytes] [BLOCK ms] STREAMS key [key …] id [id …] → entries
    after the ids."""
    arguments, reply = call.arguments, call.reply
    options = ReadOptions()
    options.read(arguments, call.now_ms, False)
    keys = options.keys(arguments)
    frozen: dict[int, bytes] = {}
    found: list[tuple[bytes, NewEntries]] = []
    missing: list[bytes] = []
    for number, key in enumerate(keys):
        stream = call.read_stream(key)
        if stream is None:
            missing.append(key)
        at = options.id_at(number)
        text = arguments.bytes(at)
        last_id = stream.last_id if stream is not None else (0, 0)
        after: tuple[int, int]
        if text == b"$":
            after = last_id
            frozen[at] = b"%d-%d" % last_id
        elif text == b"+":
            after = last_id
            if stream is not None and stream.length:
                found.append((key, newest_entry(stream)))
                continue
        elif text == b">":
            raise CommandError(_ONLY_NEW)
        else:
            after = arguments.id(at)
        if stream is not None:
            entries = entries_after(stream, after, options.count)
            if entries.total:
                found.append((key, entries))
    # Redis looks each key up twice: for the ids, then for the entries.
    call.keyspace.hits += len(keys) - len(missing)
    for key in missing:
        call.missed(key)
    if not found:
        if options.block_ms < 0 or not call.may_block:
            reply.nil_array()
            return None
        wait = Wait(keys, options.block_ms, _frozen(arguments, frozen))
        wait.for_streams = True
        return wait
    limits = options.limits()
    if limits.maxcount >= 0 or limits.maxsize >= 0:
        found = _within(limits, found)
    _begin_streams(reply, len(found))
    for key, entries in found:
        _begin_stream(reply, key)
        entries.write(reply)
    return None


def _within(
    limits: ReadLimits, found: list[tuple[bytes, NewEntries]]
) -> list[tuple[bytes, NewEntries]]:
    """What the bounds of the whole reply leave of each stream; none is empty."""
    kept: list[tuple[bytes, NewEntries]] = []
    for key, entries in found:
        share = limits.share(key)
        left = entries.within(share, 0)
        share.close()
        if left.total:
            kept.append((key, left))
    return kept


def xreadgroup(call: Call) -> Wait | None:
    """XREADGROUP GROUP group consumer [COUNT n] [MAXCOUNT n] [MAXSIZE bytes] [BLOCK ms]
    [CLAIM min-idle] [NOACK] STREAMS key [key …] id [id …] → new entries (``>``), idle ones (CLAIM),
    or the consumer's history."""
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
            delivery.of(call, key, group, options.consumer)
            delivery.noack, delivery.claim_ms = options.noack, claim_ms
            reads.append(delivery)
        else:
            claim_ms = -1
            history = History()
            history.of(call, key, group, options.consumer)
            history.after = (arguments.ms, arguments.seq)
            reads.append(history)
    call.keyspace.hits += options.streams  # Redis looks twice, as in XREAD.
    limits = options.limits()
    if options.streams > 1 and len(set(keys)) < options.streams:
        given = _give_in_turn(call, reads, limits)
    else:
        given = _give(call, reads, limits)
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


def _give(call: Call, reads: list[GroupRead], limits: ReadLimits) -> bool:
    """Plan all, ask for room for exactly that, then give; False, with nothing written, when none
    gives anything."""
    size, given = 0, []
    for read in reads:
        if read.plan(limits):
            given.append(read)
        size += read.fact_bytes()
    if size:  # a read that changes nothing, as most that go on waiting, needs no room
        call.admit(size)
    for read in reads:
        read.meet_consumer()
    if len(given) < len(reads):
        for read in reads:
            read.see_consumer()
    if given:
        _begin_streams(call.reply, len(given))
        for read in given:
            _begin_stream(call.reply, read.key)
            read.give(call.reply)
    return bool(given)


def _give_in_turn(call: Call, reads: list[GroupRead], limits: ReadLimits) -> bool:
    """As `_give` where a stream is named twice: the second read gets what the first left, so each is
    planned when those before it are done, and how many streams the reply has is known at its end."""
    size = 0
    for read in reads:
        size += read.most_fact_bytes(limits)
    if size:
        call.admit(size)
    for read in reads:
        read.meet_consumer()
        read.see_consumer()
    reply = call.reply
    body = ReplyWriter(bytearray(), reply.resp)
    given = 0
    for read in reads:
        if read.plan(limits):
            given += 1
            _begin_stream(body, read.key)
            read.give(body)
    if given:
        _begin_streams(reply, given)
        reply.raw(body.out)
    return given > 0


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
    """Whether the id is ``>``, or the greatest id, which means the same. Any other one, of a history
    read, is left in ``arguments.ms`` and ``seq``."""
    if arguments.is_byte(at, _GREATER):
        return True
    if arguments.is_byte(at, _DOLLAR) or arguments.is_byte(at, _PLUS):
        raise CommandError(_MEANINGLESS.format(arguments.bytes(at).decode()))
    arguments.find_id(at, 0)
    return arguments.ms == MAX_U64 and arguments.seq == MAX_U64


def _frozen(arguments: Arguments, values: dict[int, bytes]) -> Arguments:
    """The arguments with some of them replaced, to be run again later."""
    return Arguments.of(*(values.get(at, value) for at, value in enumerate(arguments.values())))


def _begin_streams(reply: ReplyWriter, count: int) -> None:
    if reply.resp == 3:
        reply.map(count)
    else:
        reply.array(count)


def _begin_stream(reply: ReplyWriter, key: bytes) -> None:
    if reply.resp == 2:
        reply.array(2)
    reply.bulk(key)
