"""XADD, XLEN, XRANGE, XREVRANGE, XDEL, XSETID, XSPLIT: the entries of a stream.

Source: Redis's command pages and t_stream.c; streams.md 2 and 3; verbs.md for XSPLIT.
"""

from __future__ import annotations

from headwater.commands.call import NO_SUCH_KEY, SYNTAX, Call
from headwater.commands.ids import id_list, range_end, range_start
from headwater.commands.trimming import Trim
from headwater.engine.facts import HEADROOM, ID_BYTES
from headwater.engine.stream import Stream
from headwater.errors import CommandError
from headwater.limits import MAX_ENTRY_BYTES, MAX_ID_TEXT_BYTES
from headwater.model import MAX_U64, id_after
from headwater.resp.arguments import Arguments

SMALL_ID = "ERR The ID specified in XADD is equal or smaller than the target stream top item"


class Addition:
    """What an XADD asks for, parsed; XSETTLE's TO is one as well."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.makes_stream = True
        self.id: tuple[int, int] | None = None
        """The explicit id, None for ``*``."""
        self.seq_given = True
        """False for ``ms-*``."""
        self.trim = Trim()
        self.wire = b""
        self.pairs = 0

    def take_id(self, arguments: Arguments, index: int) -> None:
        """Read ``*``, ``ms-*`` or an id."""
        text = arguments.bytes(index)
        if text == b"*":
            return
        spelled = text.partition(b"\0")[0]
        if spelled[-2:] == b"-*" and spelled.count(b"-") == 1 and len(text) <= MAX_ID_TEXT_BYTES:
            self.seq_given = False
            arguments = Arguments.of(spelled[:-2])
            index = 0
        self.id = arguments.id(index)

    def take_fields(self, arguments: Arguments, start: int, end: int) -> None:
        """Read the fields and values from ``start`` to ``end``-1, as the client encoded them."""
        self.wire = arguments.wire(start, end)
        self.pairs = (end - start) // 2

    def check(self) -> None:
        """What can be refused without looking at the stream."""
        if self.seq_given and self.id == (0, 0):
            raise CommandError("ERR The ID specified in XADD must be greater than 0-0")

    def choose_id(self, last_id: tuple[int, int], now_ms: int) -> tuple[int, int]:
        """The id that the entry gets in a stream whose last id is ``last_id``."""
        if last_id == (MAX_U64, MAX_U64):
            raise CommandError(
                "ERR The stream has exhausted the last possible ID, unable to add more items"
            )
        if len(self.wire) > MAX_ENTRY_BYTES:
            raise CommandError("ERR Elements are too large to be stored")
        if self.id is None:
            if now_ms > last_id[0]:
                return now_ms, 0
            return id_after(*last_id)
        chosen = self.id
        if not self.seq_given and chosen[0] == last_id[0]:
            if last_id[1] == MAX_U64:
                raise CommandError(SMALL_ID)
            chosen = (chosen[0], last_id[1] + 1)
        if chosen <= last_id:
            raise CommandError(SMALL_ID)
        return chosen

    def fact_bytes(self, stream: Stream | None) -> int:
        """An upper bound for the facts of `add`."""
        return 2 * HEADROOM + len(self.key) + len(self.wire) + self.trim.fact_bytes(stream, 1)

    def add(self, call: Call, stream: Stream | None, chosen: tuple[int, int]) -> None:
        """Append, then trim; admitted before."""
        if stream is None:
            stream = call.db.create_stream(self.key, call.keyspace.next_sid)
        settings = call.settings
        opens = stream.nodes.opens(
            self.wire, max_bytes=settings.node_max_bytes, max_entries=settings.node_max_entries
        )
        stream.append(*chosen, self.wire, self.pairs, opens)
        self.trim.apply(stream)
        call.modified(self.key)


def xadd(call: Call) -> None:
    """XADD key [NOMKSTREAM] [KEEPREF|DELREF|ACKED] [MAXLEN|MINID [=|~] threshold [LIMIT n]]
    <*|id|ms-*> field value [field value …] → the entry's id, nil for NOMKSTREAM and no key."""
    arguments = call.arguments
    addition = Addition(arguments.bytes(1))
    index = 2
    while index < arguments.count:
        if arguments.token(index) == b"NOMKSTREAM":
            addition.makes_stream = False
            index += 1
            continue
        following = index
        if arguments.bytes(index) != b"*":
            following = addition.trim.take(arguments, index)
        if following == index:
            addition.take_id(arguments, index)
            break
        index = following
    addition.trim.check(call.settings.node_max_entries)
    fields = arguments.count - index - 1
    if fields < 2 or fields % 2:
        raise CommandError("ERR wrong number of arguments for 'xadd' command")
    addition.check()
    stream = call.stream(addition.key)
    if stream is None and not addition.makes_stream:
        call.reply.nil()
        return
    addition.take_fields(arguments, index + 1, arguments.count)
    chosen = addition.choose_id(stream.last_id if stream is not None else (0, 0), call.now_ms)
    call.admit(addition.fact_bytes(stream))
    addition.add(call, stream, chosen)
    call.reply.id(*chosen)


def xlen(call: Call) -> None:
    """XLEN key → number of entries, 0 if there is no such key."""
    stream = call.stream(call.arguments.bytes(1))
    call.reply.integer(0 if stream is None else stream.length)


def xrange(call: Call) -> None:
    """XRANGE key start end [COUNT n] → entries in id order."""
    _range(call, 2, 3, backward=False)


def xrevrange(call: Call) -> None:
    """XREVRANGE key end start [COUNT n] → entries, newest first."""
    _range(call, 3, 2, backward=True)


def _range(call: Call, start_at: int, end_at: int, *, backward: bool) -> None:
    arguments, reply = call.arguments, call.reply
    start, end = range_start(arguments, start_at), range_end(arguments, end_at)
    count = -1
    index = 4
    while index < arguments.count:
        if arguments.token(index) != b"COUNT" or index + 1 == arguments.count:
            raise CommandError(SYNTAX)
        count = max(0, arguments.integer(index + 1))
        index += 2
    stream = call.stream(arguments.bytes(1))
    if stream is None:
        reply.array(0)
        return
    if count == 0:
        reply.nil_array()
        return
    log = stream.log
    spans, total = log.backward(start, end, count) if backward else log.spans(start, end, count)
    reply.array(total)
    for span in spans:
        reply.raw(span.wire())


def xdel(call: Call) -> None:
    """XDEL key id [id …] → how many entries were deleted; pending lists keep them."""
    arguments = call.arguments
    key = arguments.bytes(1)
    stream = call.stream(key)
    if stream is None:
        call.reply.integer(0)
        return
    ids = dict.fromkeys(id_list(arguments, 2, arguments.count))
    found = [entry_id for entry_id in ids if stream.log.contains(*entry_id)]
    if found:
        call.admit(HEADROOM + len(found) * ID_BYTES)
        stream.delete(found, marks=True)
        call.modified(key, len(found))
    call.reply.integer(len(found))


def xsetid(call: Call) -> None:
    """XSETID key last-id [ENTRIESADDED n] [MAXDELETEDID id] → OK."""
    arguments = call.arguments
    last_id = arguments.id(2)
    added: int | None = None
    deleted = (0, 0)
    index = 3
    while index < arguments.count:
        word = arguments.token(index)
        if word == b"ENTRIESADDED" and index + 1 < arguments.count:
            added = arguments.integer(index + 1)
            if added < 0:
                raise CommandError("ERR entries_added must be positive")
        elif word == b"MAXDELETEDID" and index + 1 < arguments.count:
            deleted = arguments.id(index + 1)
            if last_id < deleted:
                raise CommandError(
                    "ERR The ID specified in XSETID is smaller than the provided "
                    "max_deleted_entry_id"
                )
        else:
            raise CommandError(SYNTAX)
        index += 2
    stream = call.stream(arguments.bytes(1))
    if stream is None:
        raise CommandError(NO_SUCH_KEY)
    if last_id < stream.max_deleted_id:
        raise CommandError(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
        )
    if stream.length and last_id < stream.log.last():
        raise CommandError(
            "ERR The ID specified in XSETID is smaller than the target stream top item"
        )
    if stream.length and added is not None and added < stream.length:
        raise CommandError(
            "ERR The entries_added specified in XSETID is smaller than the target stream length"
        )
    call.admit(HEADROOM)
    stream.set_id(
        last_id,
        stream.entries_added if added is None else added,
        deleted if deleted != (0, 0) else stream.max_deleted_id,
    )
    call.keyspace.dirty += 1
    call.reply.ok()


def xsplit(call: Call) -> None:
    """XSPLIT key start end parts → [live entries in the range, ids at which equal parts begin].

    The first part begins at the range's start and is not named; the first ``count mod parts`` parts
    are one larger. Costs block counts, no body (verbs.md).
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
