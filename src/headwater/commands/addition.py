"""What appends one entry: XADD, and each TO of an XSETTLE.

Source: Redis's command page and t_stream.c (streamParseAddOrTrimArgsOrReply).
"""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.events import STREAM
from headwater.commands.idempotency import IdempotentID
from headwater.commands.trimming import Trim
from headwater.engine.facts import HEADROOM
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
        self.iid: IdempotentID | None = None
        """What IDMP or IDMPAUTO gave, if either did."""
        self.trim = Trim()
        self.wire = b""
        self.pairs = 0

    def take_options(self, arguments: Arguments, index: int) -> int:
        """Read the options of an XADD from ``index`` on, and the id: the first argument that is no
        option. The index of that; all arguments may be options."""
        while index < arguments.count:
            if arguments.bytes(index) == b"*":
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
        following = self.trim.take(arguments, index)
        if following != index:
            return following
        word = arguments.token(index)
        if word == b"NOMKSTREAM":
            self.makes_stream = False
            return index + 1
        if word in IdempotentID.OPTIONS:
            self.iid, following = IdempotentID.taken(arguments, index, self.iid)
        return following

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
        size = 3 * HEADROOM + len(self.key) + len(self.wire) + self.trim.fact_bytes(stream, 1)
        return size if self.iid is None else size + self.iid.fact_bytes()

    def add(self, call: Call, stream: Stream | None, chosen: tuple[int, int]) -> None:
        """Append, record the iid, then trim; admitted before."""
        if stream is None:
            stream = call.create_stream(self.key)
        settings = call.settings
        opens = stream.nodes.opens(
            self.wire, max_bytes=settings.node_max_bytes, max_entries=settings.node_max_entries
        )
        stream.append(*chosen, self.wire, self.pairs, opens)
        if self.iid is not None:
            self.iid.record(stream, chosen)
        call.modified(self.key)
        call.notify(STREAM, b"xadd", self.key)
        if self.trim.apply(stream):
            call.notify(STREAM, b"xtrim", self.key)
