"""Moves one chunk of an epoch from a stage to the stream: entries and position in one MULTI.

The server rejects the MULTI if the marker (for rows that set ids, also the stream) has changed since it was read,
and if it has no room for all of the entries. A chunk is a pack of the stage, which is sent as it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headwater.common.model import StreamID
from headwater.messages.keys import sink_key
from headwater.spark.core.connection import patiently
from headwater.spark.core.replies import as_dict, as_text
from headwater.spark.sink.entries import command
from headwater.spark.sink.marker import Marker
from headwater.spark.sink.packs import Pack, is_pack, packed, unpacked, without_first

if TYPE_CHECKING:
    from headwater.spark.sink.options import SinkOptions
    from headwater.spark.sink.wire import Wire

_EARLIER_ROWS: Final = 1000
"""Maximum number of rows in a chunk if an earlier version wrote the stage."""

_ENDED_SECONDS: Final = 60
"""Time after which a published stage expires if the driver ends before removing it, in seconds."""

Status = Literal["ok", "moved", "type", "missing", "refused"]


class ChunkResult(NamedTuple):
    """Result of a step. The step added ``added`` entries, and the position is after these entries.

    moved    nothing was added: the marker or the stream has changed
    type     nothing was added: the key is not a stream; ``text`` is its type
    missing  nothing was added: the stage does not have the entries that were counted
    refused  the server did not accept the entry after those added; ``text`` is the error
    """

    status: Status
    added: int = 0
    text: str = ""


class Mover:
    """Moves the chunks of one query."""

    def __init__(
        self, options: SinkOptions, query: str, wire: Wire, stage_of: Callable[[str], str]
    ) -> None:
        self._options = options
        self._wire = wire
        self._dest = options.stream.encode()
        self._key = sink_key(options.stream, query).encode()
        self._stage = stage_of

    def move(self, state: Marker) -> ChunkResult:
        """Move the next chunk after ``state``, which is the marker as it was last read.

        Raises redis-py's error if the connection is lost; the marker alone then shows whether the chunk was
        moved.
        """
        now, entries, kind = self._look(state)
        if now != state:
            return ChunkResult("moved")
        rows = self._rows(state, entries)
        if rows is None:
            return ChunkResult("missing")
        if kind not in ("none", "stream"):
            return ChunkResult("type", 0, kind)
        if rows.sets_ids:
            late = self._late(rows, kind)
            if late is not None:
                return late
        moved = after(state, rows.rows)
        steps = self._steps(state, moved)
        packet = b"".join(
            [command(b"MULTI"), rows.commands, *(command(*one) for one in steps), command(b"EXEC")]
        )
        replies = self._wire.once(packet, 1 + rows.rows + len(steps) + 1)
        outcome = replies[-1]
        if outcome is None:  # a watched key has changed
            return ChunkResult("moved")
        if isinstance(outcome, Exception):  # nothing was executed, because of the first error
            text = next(str(reply) for reply in replies if isinstance(reply, Exception))
            return ChunkResult("refused", 0, text)
        result = self._judge(state, outcome[: rows.rows])
        if result.status == "ok" and _ends(state, moved):
            self._ask([b"UNLINK", self._stage_of(state)])
        return result

    # --- reading ----------------------------------------------------------------------------------

    def _look(self, state: Marker) -> tuple[Marker | None, list[Any], str]:
        """Watch the marker; return it, the next entry of the stage, and the type of the stream's key.

        The stream is not watched, because it never refuses ids that the server generates. If the key's type
        changes before the step, `_judge` notices.
        """
        replies = self._ask(
            [b"UNWATCH"],
            [b"WATCH", self._key],
            [b"HGETALL", self._key],
            _next(self._stage_of(state), state.position, 1),
            [b"TYPE", self._dest],
        )
        marker = Marker.parse(self._key.decode(), replies[2])
        return marker, replies[3], as_text(replies[4])

    def _rows(self, state: Marker, entries: list[Any]) -> Pack | None:
        """Return the next rows of the stage; None if the stage does not have them."""
        count = state.stages[state.stage][1]
        if not entries:
            return None
        if is_pack(entries[0]):
            whole = unpacked(entries[0])
            skipped = state.position - (whole.last - whole.rows)
            if skipped < 0 or whole.last > count:
                return None
            return without_first(whole, skipped)
        expected = min(_EARLIER_ROWS, count - state.position)
        found = self._ask(_next(self._stage_of(state), state.position, expected))[0]
        head = [b"XADD", self._dest, *(word.encode() for word in self._options.trim)]
        rows = packed(found, head) if len(found) == expected else None
        return rows if rows is not None and rows.last == state.position + expected else None

    def _late(self, rows: Pack, kind: str) -> ChunkResult | None:
        """Watch the stream; return the refusal of the first id, or None if the stream would accept that id."""
        _ok, info = self._ask(
            [b"WATCH", self._dest],
            [b"XINFO", b"STREAM", self._dest] if kind == "stream" else [b"PING"],
        )
        first = StreamID.parse(as_text(_first_id(rows, 2 + len(self._options.trim))))
        last = _last_of(info) if kind == "stream" else StreamID(0, 0)
        if first > last:
            return None
        return ChunkResult("refused", 0, f"the id {first} is not above {last}, the stream's last")

    def _ask(self, *commands: list[bytes]) -> list[Any]:
        """Return the replies to ``commands``. Raises redis-py's error if one of the replies is an error."""
        import redis

        replies = self._wire.once(b"".join(command(*one) for one in commands), len(commands))
        for reply in replies:
            if isinstance(reply, Exception):
                raise redis.ResponseError(str(reply))
        return replies

    # --- writing ----------------------------------------------------------------------------------

    def _steps(self, state: Marker, moved: Marker) -> list[list[bytes]]:
        """Return the commands that set the position.

        A stage that is published is not removed here but expires soon, because `_judge` may still need it.
        """
        fields = {name: text for name, text in moved.fields().items() if name != "stages"}
        steps = [[b"HSET", self._key, *_texts(fields)]]
        if _ends(state, moved):
            steps.append([b"EXPIRE", self._stage_of(state), b"%d" % _ENDED_SECONDS])
        if moved.done:
            steps.append([b"HDEL", self._key, b"stages"])
        return steps

    def _stage_of(self, state: Marker) -> bytes:
        return self._stage(state.stages[state.stage][0]).encode()

    def _judge(self, state: Marker, replies: list[Any]) -> ChunkResult:
        """Evaluate the replies of EXEC.

        The server can refuse a single entry; for example, on a full disk, an entry whose trimming with ACKED needs
        more space. The position is then set to that entry, and the entries added after it are deleted.
        """
        wrong = next((n for n, reply in enumerate(replies) if isinstance(reply, Exception)), None)
        if wrong is None:
            return ChunkResult("ok", len(replies))
        moved = after(state, wrong)
        late = [reply for reply in replies[wrong:] if not isinstance(reply, Exception)]
        steps = [
            [b"HSET", self._key, *_texts(moved.fields())],
            [b"HDEL", self._key, b"done"],
            [b"PERSIST", self._stage_of(state)],
        ]
        if late:
            steps.append([b"XDEL", self._dest, *late])
        patiently(self._options.url, lambda: self._ask([b"MULTI"], *steps, [b"EXEC"]))
        return ChunkResult("refused", wrong, str(replies[wrong]))


def after(state: Marker, added: int) -> Marker:
    """Return the marker after ``added`` more entries are published."""
    stage, position = state.stage, state.position + added
    published = state.published + added
    if position < state.stages[stage][1]:
        return replace(state, position=position, published=published)
    if stage + 1 < len(state.stages):
        return replace(state, stage=stage + 1, position=0, published=published)
    return replace(state, position=position, published=published, done=True)


def _ends(state: Marker, moved: Marker) -> bool:
    """Return whether the stage of ``state`` is published."""
    return moved.done or moved.stage != state.stage


def _next(stage: bytes, position: int, count: int) -> list[bytes]:
    """Return the command that reads the next entries of a stage."""
    return [b"XRANGE", stage, b"%d-0" % (position + 1), b"+", b"COUNT", b"%d" % count]


def _texts(fields: Mapping[str, str]) -> list[bytes]:
    return [text.encode() for pair in fields.items() for text in pair]


def type_of(client: Any, key: str) -> str:
    """Return the reply of TYPE."""
    found: bytes = client.type(key)
    return found.decode()


def last_id(client: Any, stream: str) -> StreamID:
    """Return the ``last-generated-id`` of ``stream``."""
    return _last_of(client.execute_command("XINFO STREAM", stream))


def _last_of(info: Any) -> StreamID:
    return StreamID.parse(as_text(as_dict(info)["last-generated-id"]))


def _first_id(rows: Pack, place: int) -> bytes:
    """Return the id in the first XADD. ``place`` is the index of the id in the request."""
    import hiredis

    reader = hiredis.Reader()
    reader.feed(rows.commands)
    found: bytes = reader.gets()[place]
    return found
