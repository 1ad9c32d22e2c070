"""XADD, and `AddRequest`, which XSETTLE uses for each TO.

Source: Redis's command page and t_stream.c (streamParseAddOrTrimArgsOrReply).
"""

from __future__ import annotations

from headwater.commands.call import Call, StreamSettings
from headwater.commands.idempotency import IdempotentID
from headwater.commands.xtrim import Trim
from headwater.common.limits import MAX_ID_TEXT_BYTES
from headwater.common.model import MAX_U64
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.events import STREAM
from headwater.engine.streams.stream import StoredStream
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

_STAR = 42

SMALL_ID = "ERR The ID specified in XADD is equal or smaller than the target stream top item"


class AddRequest:
    """The parsed arguments of an XADD, or of a TO of XSETTLE.

    The fields and values stay in the buffer of the arguments until `add` copies them into the stream.
    """

    def __init__(self, key: bytes) -> None:
        self.begin(key)

    def begin(self, key: bytes) -> None:
        """Reset all attributes, so that one object can be used for all XADDs of a client."""
        self.key = key
        self.makes_stream = True
        self.id_given = False
        """False if the id is ``*``."""
        self.seq_given = True
        """False if the id is ``ms-*``."""
        self.ms = self.seq = 0
        """The explicit id and, after `choose_id`, the id of the entry."""
        self.iid: IdempotentID | None = None
        """The pair of IDMP or IDMPAUTO; None if neither is given."""
        self.trim: Trim | None = None
        """The trimming options; None if none is given."""
        self.start = self.end = self.pairs = 0
        """Position of the fields and values in the buffer of the arguments, and the number of pairs."""
        self.max_bytes = 0
        """Maximum size of all fields and values together, in bytes, from the settings."""

    def take_options(self, arguments: Arguments, index: int) -> int:
        """Parse the options of an XADD from ``index`` on, and the id, which is the first argument that is not an
        option. Return the index of the id; the number of arguments if all are options."""
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
        """Parse a trimming option at ``index``. Return the index after it; ``index`` if it is not a trimming option."""
        trim = self.trim if self.trim is not None else Trim()
        following = trim.take(arguments, index)
        if following != index:
            self.trim = trim
        return following

    def take_id(self, arguments: Arguments, index: int) -> None:
        """Parse ``*``, ``ms-*`` or an id."""
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

    def take_fields(self, arguments: Arguments, first: int, end: int) -> None:
        """Set the fields and values to arguments ``first`` to ``end``-1, as the client encoded them."""
        arguments.find_wire(first, end)
        self.start, self.end = arguments.wire_start, arguments.wire_end
        self.pairs = (end - first) // 2

    def check(self, settings: StreamSettings) -> None:
        """Check the trimming options, and set the limits from the settings. Raises `CommandError` if the options
        cannot be combined."""
        self.max_bytes = settings.max_entry_bytes
        if self.trim is not None:
            self.trim.check(settings.node_max_entries)

    def check_id(self) -> None:
        """Check the part of the id that does not depend on the stream. Raises `CommandError` for 0-0."""
        if self.id_given and self.seq_given and self.ms == 0 and self.seq == 0:
            raise CommandError("ERR The ID specified in XADD must be greater than 0-0")

    def choose_id(self, last_ms: int, last_seq: int, wall_ms: int) -> None:
        """Choose the id of the entry in a stream whose last id is ``last_ms-last_seq``: for ``*`` the time of the wall
        clock, or the id after the last one if the clock is behind. Raises `CommandError`."""
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
        """Return an upper bound for the facts of `add`, in bytes."""
        size = 3 * HEADROOM + len(self.key) + self.end - self.start
        if self.trim is not None:
            size += self.trim.fact_bytes(stream, 1)
        return size if self.iid is None else size + self.iid.fact_bytes()

    def add(self, call: Call, stream: StoredStream | None) -> None:
        """Append the entry, record its iid, then trim the stream. The caller must have called `Call.admit`."""
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
    [MAXLEN|MINID [=|~] threshold [LIMIT n]] <*|id|ms-*> field value [field value …] → the id of the
    entry; nil with NOMKSTREAM if the key does not exist; for a known iid the id of the existing entry."""
    arguments = call.arguments
    if isinstance(call.spare, AddRequest):
        request = call.spare
        request.begin(call.key(1))
    else:
        request = AddRequest(call.key(1))
        call.spare = request
    index = request.take_options(arguments, 2)
    request.check(call.settings)
    fields = arguments.count - index - 1
    if fields < 2 or fields % 2:
        raise CommandError("ERR wrong number of arguments for 'xadd' command")
    request.check_id()
    stream = call.stream(request.key)
    if stream is None and not request.makes_stream:
        call.reply.nil()
        return
    if stream is not None:
        stream.expect_entry()
    if request.iid is not None:
        request.iid.choose(arguments, index + 1)
        if stream is not None and request.iid.repeats(call, stream):
            return
    request.take_fields(arguments, index + 1, arguments.count)
    if stream is not None:
        request.choose_id(stream.last_ms, stream.last_seq, call.wall_ms())
    else:
        request.choose_id(0, 0, call.wall_ms())
    call.admit(request.fact_bytes(stream))
    request.add(call, stream)
    call.reply.id(request.ms, request.seq)
