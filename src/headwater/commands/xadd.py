"""What appends one entry: XADD, and each TO of an XSETTLE.

Source: Redis's command page and t_stream.c (streamParseAddOrTrimArgsOrReply).
"""

from __future__ import annotations

from headwater.commands.call import Call, StreamSettings
from headwater.commands.idempotency import IdempotentID
from headwater.commands.xtrim import Trim
from headwater.engine.events import STREAM
from headwater.engine.facts import HEADROOM
from headwater.engine.stream import StoredStream
from headwater.errors import CommandError
from headwater.limits import MAX_ID_TEXT_BYTES
from headwater.model import MAX_U64
from headwater.resp.arguments import Arguments

_STAR = 42

SMALL_ID = "ERR The ID specified in XADD is equal or smaller than the target stream top item"


class AddRequest:
    """What an XADD asks for, parsed; XSETTLE's TO is one as well.

    Its fields stay where they are, in the arguments; `add` copies them into the stream."""

    def __init__(self, key: bytes) -> None:
        self.begin(key)

    def begin(self, key: bytes) -> None:
        """Forget what was asked for before: one object serves a client's XADDs one after another."""
        self.key = key
        self.makes_stream = True
        self.id_given = False
        """False for ``*``."""
        self.seq_given = True
        """False for ``ms-*``."""
        self.ms = self.seq = 0
        """The explicit id; once chosen, the id that the entry gets."""
        self.iid: IdempotentID | None = None
        """What IDMP or IDMPAUTO gave, if either did."""
        self.trim: Trim | None = None
        """What options of trimming were given, if any were."""
        self.start = self.end = self.pairs = 0
        """Where its fields and values stand in the arguments' buffer, and how many pairs they are."""
        self.max_bytes = 0
        """Most bytes of fields and values, from the settings."""

    def take_options(self, arguments: Arguments, index: int) -> int:
        """Read the options of an XADD from ``index`` on, and the id: the first argument that is no
        option. The index of that; all arguments may be options."""
        while index < arguments.count:
            if arguments.is_byte(index, _STAR):
                return index
            following = self._option(arguments, index)
            if following == index:
                self.take_id(arguments, index)
                if self.iid is not None:
                    self.iid.refuse_explicit_id()
                return index
            index = following
        return index

    def _option(self, arguments: Arguments, index: int) -> int:
        following = self.take_trim(arguments, index)
        if following != index:
            return following
        word = arguments.token(index)
        if word == b"NOMKSTREAM":
            self.makes_stream = False
            return index + 1
        if word in IdempotentID.OPTIONS:
            self.iid, following = IdempotentID.taken(arguments, index, self.iid)
        return following

    def take_trim(self, arguments: Arguments, index: int) -> int:
        """Read the option of trimming at ``index``; the index behind it, or ``index`` if it is none."""
        trim = self.trim if self.trim is not None else Trim()
        following = trim.take(arguments, index)
        if following != index:
            self.trim = trim
        return following

    def take_id(self, arguments: Arguments, index: int) -> None:
        """Read ``*``, ``ms-*`` or an id."""
        if arguments.is_byte(index, _STAR):
            return
        text = arguments.bytes(index)
        spelled = text.partition(b"\0")[0]
        if spelled[-2:] == b"-*" and spelled.count(b"-") == 1 and len(text) <= MAX_ID_TEXT_BYTES:
            self.seq_given = False
            arguments = Arguments.of(spelled[:-2])
            index = 0
        arguments.find_id(index, 0)
        self.id_given = True
        self.ms, self.seq = arguments.ms, arguments.seq

    def take_fields(self, arguments: Arguments, first: int, behind: int) -> None:
        """The fields and values are arguments ``first`` to ``behind``-1, as the client encoded them."""
        arguments.find_wire(first, behind)
        self.start, self.end = arguments.wire_start, arguments.wire_end
        self.pairs = (behind - first) // 2

    def check(self, settings: StreamSettings) -> None:
        """What of the options can be refused without looking at the stream; from now on the settings'
        bounds are known."""
        self.max_bytes = settings.max_entry_bytes
        if self.trim is not None:
            self.trim.check(settings.node_max_entries)

    def check_id(self) -> None:
        """What of the id can be refused without looking at the stream."""
        if self.id_given and self.seq_given and self.ms == 0 and self.seq == 0:
            raise CommandError("ERR The ID specified in XADD must be greater than 0-0")

    def choose_id(self, last_ms: int, last_seq: int, wall_ms: int) -> None:
        """Settle the id that the entry gets in a stream whose last id is ``last_ms-last_seq``: one of
        the wall clock, and one that is greater where that went back."""
        if last_ms == MAX_U64 and last_seq == MAX_U64:
            raise CommandError(
                "ERR The stream has exhausted the last possible ID, unable to add more items"
            )
        if self.end - self.start > self.max_bytes:
            raise CommandError("ERR Elements are too large to be stored")
        if not self.id_given:
            if wall_ms > 0 and last_ms < wall_ms:
                self.ms = wall_ms
                self.seq = 0
            elif last_seq != MAX_U64:
                self.ms = last_ms
                self.seq = last_seq + 1
            else:
                self.ms = last_ms + 1
                self.seq = 0
            return
        if not self.seq_given and self.ms == last_ms:
            if last_seq == MAX_U64:
                raise CommandError(SMALL_ID)
            self.seq = last_seq + 1
        if self.ms < last_ms or (self.ms == last_ms and self.seq <= last_seq):
            raise CommandError(SMALL_ID)

    def fact_bytes(self, stream: StoredStream | None) -> int:
        """An upper bound for the facts of `add`."""
        size = 3 * HEADROOM + len(self.key) + self.end - self.start
        if self.trim is not None:
            size += self.trim.fact_bytes(stream, 1)
        return size if self.iid is None else size + self.iid.fact_bytes()

    def add(self, call: Call, stream: StoredStream | None) -> None:
        """Append, record the iid, then trim; admitted before."""
        if stream is None:
            stream = call.create_stream(self.key)
        settings, wire = call.settings, call.arguments.buffer
        opens = stream.nodes.opens(
            wire, self.start, self.end, settings.node_max_bytes, settings.node_max_entries
        )
        stream.append_part(self.ms, self.seq, wire, self.start, self.end, self.pairs, opens)
        if self.iid is not None:
            self.iid.record(call, stream, (self.ms, self.seq))
        call.modified(self.key)
        call.notify(STREAM, b"xadd", self.key)
        if self.trim is not None and self.trim.apply(stream):
            call.notify(STREAM, b"xtrim", self.key)


def xadd(call: Call) -> None:
    """XADD key [NOMKSTREAM] [KEEPREF|DELREF|ACKED] [IDMPAUTO pid | IDMP pid iid]
    [MAXLEN|MINID [=|~] threshold [LIMIT n]] <*|id|ms-*> field value [field value …] → the entry's
    id; nil for NOMKSTREAM and no key; for an iid that is known, the id that it has become."""
    arguments = call.arguments
    if isinstance(call.spare, AddRequest):
        addition = call.spare
        addition.begin(call.key(1))
    else:
        addition = AddRequest(call.key(1))
        call.spare = addition
    index = addition.take_options(arguments, 2)
    addition.check(call.settings)
    fields = arguments.count - index - 1
    if fields < 2 or fields % 2:
        raise CommandError("ERR wrong number of arguments for 'xadd' command")
    addition.check_id()
    stream = call.stream(addition.key)
    if stream is None and not addition.makes_stream:
        call.reply.nil()
        return
    if stream is not None:
        stream.expect_entry()
    if addition.iid is not None:
        addition.iid.choose(arguments, index + 1)
        if stream is not None and addition.iid.repeats(call, stream):
            return
    addition.take_fields(arguments, index + 1, arguments.count)
    if stream is not None:
        addition.choose_id(stream.last_ms, stream.last_seq, call.wall_ms())
    else:
        addition.choose_id(0, 0, call.wall_ms())
    call.admit(addition.fact_bytes(stream))
    addition.add(call, stream)
    call.reply.id(addition.ms, addition.seq)
