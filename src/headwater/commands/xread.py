"""XREAD, and the parts that XREADGROUP shares with it: options, limits and reading new entries.

Rule 1. COUNT limits each stream; MAXCOUNT and MAXSIZE limit all streams together.
Rule 2. Streams are read in the order of the request. When a limit of the whole reply is reached, the
        streams that follow are omitted, and none of their entries is delivered.
Rule 3. MAXSIZE is a soft limit: the entry that reaches it is the last one, so at least one entry is returned.
        MAXSIZE counts the bytes of stream names and entries as they are encoded in the reply.

Source: Redis's command pages (8.10 for MAXCOUNT and MAXSIZE) and t_stream.c (xreadCommand).
"""

from __future__ import annotations

from headwater.commands.call import SYNTAX, Call, Wait
from headwater.commands.ids import GREATEST
from headwater.commands.reply_tail import write_spans
from headwater.commands.times import milliseconds
from headwater.common.limits import MAX_COUNT, MAX_DURATION_MS
from headwater.common.model import MAX_U64
from headwater.engine.bodies.sealed_block import ColdBlocks
from headwater.engine.entries.entry_block import Span
from headwater.engine.entries.entry_log import EntryLog
from headwater.engine.shared.history import StreamHistory
from headwater.engine.streams.stream import StoredStream
from headwater.engine.tier.warming import up_to, warm
from headwater.errors import CommandError
from headwater.resp.arguments import INTEGER_ERROR, Arguments
from headwater.resp.replies import ReplyWriter

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has it in C
    from headwater.native.memory import append_fours

_BULK_FRAME = len(b"$\r\n\r\n")

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


class ReadOptions:
    """The options before STREAMS, and the positions of the keys and ids. -1 means that an option is not given."""

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
        """Parse the arguments of XREAD, or of XREADGROUP (``grouped``). Raises `CommandError`."""
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
        self.count, self.maxcount = min(self.count, MAX_COUNT), min(self.maxcount, MAX_COUNT)

    def _option(self, arguments: Arguments, index: int, more: int) -> int:
        """Parse the option at ``index``, which ``more`` arguments follow. Return the index after it."""
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
            self.claim_ms = min(arguments.number, MAX_DURATION_MS)
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
        """Return the index of the argument with the id of stream number ``stream``."""
        return self.keys_at + self.streams + stream


def _positive(arguments: Arguments, index: int, option: str) -> int:
    value = arguments.integer(index)
    if value < 1:
        raise CommandError(f"ERR {option} must be a positive integer")
    return value


class ReadLimits:
    """The limits of one command (-1: no limit), and the number and size of the entries in its reply so far."""

    def __init__(self) -> None:
        self.count = -1
        self.maxcount = -1
        self.maxsize = -1
        self.entries = 0
        self.size = 0

    def share(self, key: bytes) -> Share:
        """Return the share of the next stream, which is at ``key``."""
        share = Share()
        share.begin(self, key)
        return share

    def most(self) -> int:
        """Return the maximum number of entries from the next stream, by COUNT and MAXCOUNT; -1 for all."""
        if self.maxcount < 0:
            return self.count
        left = self.maxcount - self.entries
        return left if self.count < 0 else min(self.count, left)


class Share:
    """The number of entries that one stream may contribute to the reply, and has contributed. Made by
    `ReadLimits.share`; call `close` after the last `add`.

    >>> limits = ReadLimits()
    >>> limits.maxcount, limits.maxsize = 3, 40
    >>> share = limits.share(b"orders")
    >>> share.left(), share.full()
    (3, False)
    >>> share.add(30)
    >>> share.left(), share.full()
    (2, True)
    """

    def __init__(self) -> None:
        self.most = -1
        self.maxsize = -1
        self.taken = 0
        self.size = 0

    def begin(self, limits: ReadLimits, key: bytes) -> None:
        """Set the limits for the stream at ``key``."""
        self.limits = limits
        self.most = limits.most()
        self.maxsize = limits.maxsize
        self.size = limits.size
        if self.maxsize >= 0:
            self.size += len(key) + len(str(len(key))) + _BULK_FRAME
            if 0 < limits.entries and limits.maxsize <= limits.size:
                self.most = 0

    def left(self) -> int:
        """Return the number of further entries that COUNT and MAXCOUNT allow; -1 for all."""
        return self.most if self.most < 0 else self.most - self.taken

    def full(self) -> bool:
        """Return whether no further entry is allowed."""
        if self.taken == self.most:
            return True
        return 0 <= self.maxsize <= self.size and self.taken + self.limits.entries > 0

    def add(self, size: int) -> None:
        """Count an entry of ``size`` bytes."""
        self.taken += 1
        self.size += size

    def close(self) -> None:
        """Add the entries of this stream to the totals of the command."""
        if self.taken:
            self.limits.entries += self.taken
            self.limits.size = self.size


class NewEntries:
    """Consecutive live entries of a stream, from `entries_after` or `newest_entry`."""

    def __init__(self, log: EntryLog) -> None:
        self.log = log
        self.spans: list[Span] = []
        self.total = 0

    def within(self, share: Share, more: int) -> NewEntries:
        """Return the entries that ``share`` allows, and count them. Each takes ``more`` additional bytes."""
        if share.maxsize < 0 and not 0 <= share.left() < self.total:
            share.taken += self.total
            return self
        spans: list[Span] = []
        before = share.taken
        for number, span in enumerate(self.spans):
            end, block = span.first, span.block
            if share.maxsize >= 0 and not share.full():
                self._open(number)
            while end < span.end and not share.full():
                size = 0  # only MAXSIZE needs it
                if share.maxsize >= 0:
                    size = block.start(end + 1) - block.start(end) + more
                share.add(size)
                end += 1
            if end > span.first:
                spans.append(Span(block, span.first, end))
        made = NewEntries(self.log)
        made.spans, made.total = spans, share.taken - before
        return made

    def _open(self, number: int) -> None:
        """Open the block of span ``number``. Raises `ColdBlocks` with this block and those after it."""
        span = self.spans[number]
        packed, bodies = span.block.packed, span.block.sealing.bodies
        if packed is None or packed.blob is None or bodies.try_open(packed, span.first, span.end):
            return
        following = up_to(one.block.packed for one in self.spans[number + 1 :])
        raise ColdBlocks([packed, *following])

    def write(self, reply: ReplyWriter) -> None:
        """Write the entries as an array."""
        reply.array(self.total)
        write_spans(reply, self.spans, False)

    def write_four(self, reply: ReplyWriter) -> None:
        """Write the entries as XREADGROUP CLAIM shows new ones, ``[id, fields, 0, 0]``, without an array header."""
        for span in self.spans:
            block = span.block
            data, edges = block.entries(), block.edges()
            append_fours(reply.out, data, edges, span.first, span.end, span.stop())


def entries_after(stream: StreamHistory, last_seen: tuple[int, int], count: int) -> NewEntries:
    """Return the entries after the id ``last_seen``, at most ``count`` (-1: all)."""
    made = NewEntries(stream.log)
    ms, seq = last_seen[0], last_seen[1]
    if ms < stream.last_ms or (ms == stream.last_ms and seq < stream.last_seq):
        if seq < MAX_U64:
            seq += 1
        else:
            ms, seq = ms + 1, 0
        made.spans, made.total = stream.log.spans((ms, seq), GREATEST, count)
    return made


def newest_entry(stream: StoredStream) -> NewEntries:
    """Return the last live entry of a non-empty stream."""
    made, last = NewEntries(stream.log), stream.log.last()
    made.spans, made.total = stream.log.spans(last, last)
    return made


def xread(call: Call) -> Wait | None:
    """XREAD [COUNT n] [MAXCOUNT n] [MAXSIZE bytes] [BLOCK ms] STREAMS key [key …] id [id …] → the
    entries after the ids."""
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
    # Redis looks up each key twice, for its id and for its entries.
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
    if call.keyspace.sealing.stored_count:
        chosen = [(entries.log, entries.spans) for _, entries in found]
        warm(call.keyspace.sealing, chosen, most_bytes=reply.piece_bytes)
    begin_streams(reply, len(found))
    for key, entries in found:
        begin_stream(reply, key)
        entries.write(reply)
    return None


def _within(
    limits: ReadLimits, found: list[tuple[bytes, NewEntries]]
) -> list[tuple[bytes, NewEntries]]:
    """Return the entries of each stream that MAXCOUNT and MAXSIZE allow, without streams that have none left."""
    kept: list[tuple[bytes, NewEntries]] = []
    for key, entries in found:
        share = limits.share(key)
        left = entries.within(share, 0)
        share.close()
        if left.total:
            kept.append((key, left))
    return kept


def _frozen(arguments: Arguments, values: dict[int, bytes]) -> Arguments:
    """Return a copy of the arguments, for the run after a wait. ``values`` replace those with the same index."""
    return Arguments.of(*(values.get(at, value) for at, value in enumerate(arguments.values())))


def begin_streams(reply: ReplyWriter, count: int) -> None:
    """Begin the reply of a read: a map in RESP3, an array of pairs in RESP2."""
    if reply.resp == 3:
        reply.map(count)
    else:
        reply.array(count)


def begin_stream(reply: ReplyWriter, key: bytes) -> None:
    """Begin one stream in the reply of a read. Its entries follow."""
    if reply.resp == 2:
        reply.array(2)
    reply.bulk(key)
