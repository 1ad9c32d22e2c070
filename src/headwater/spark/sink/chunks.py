"""Moves one chunk of an epoch from a stage to the stream: entries and position in one step of the server.

With Lua, the entries stay inside the server (scripts.py). If Lua is missing or forbidden, they are read here
and sent back in a MULTI, which the server rejects if the stream or the marker has changed in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headwater.messages.keys import sink_key
from headwater.model import StreamID
from headwater.spark.core.connection import patiently
from headwater.spark.core.replies import as_dict, as_text
from headwater.spark.sink.marker import Marker
from headwater.spark.sink.scripts import CHUNK, MOST_WORDS

if TYPE_CHECKING:
    import redis

    from headwater.spark.sink.options import SinkOptions

CHUNK_ENTRIES: Final = 1000
CHUNK_BYTES: Final = 1024 * 1024
"""How much one step moves: some milliseconds during which the server does nothing else."""

_PATIENT_TRIES: Final = 8
"""How often a MULTI may fail because of other writers before it stops watching the stream."""

_NO_LUA: Final = ("unknown command", "no permissions")

Status = Literal["ok", "moved", "type", "missing", "wide", "refused"]


class ChunkResult(NamedTuple):
    """What a step did: it added ``added`` entries, and the position is after them.

    moved    nothing: the marker has changed
    type     nothing: the key is not a stream; ``text`` is its type
    missing  nothing: the stage does not have the entries that were counted
    wide     stopped before an entry with more fields than Lua can pass to XADD
    refused  stopped at an entry that the server did not accept; ``text`` is its error
    """

    status: Status
    added: int = 0
    text: str = ""


class Mover:
    """Moves the chunks of one query."""

    def __init__(
        self, client: redis.Redis, options: SinkOptions, query: str, stage_of: Callable[[str], str]
    ) -> None:
        self._client = client
        # redis-py returns an entry as a dict, which would lose repeated fields.
        client.set_response_callback("XRANGE", lambda reply, **_options: reply)
        self._options = options
        self._dest = options.stream
        self._key = sink_key(options.stream, query)
        self._stage = stage_of
        self._script = client.register_script(CHUNK)
        self._lua = True
        self._conflicts = 0

    def move(self, state: Marker) -> ChunkResult:
        """Move the next chunk after ``state``, which is the marker as it was last read."""
        outcome = self._by_script(state) if self._lua else None
        if outcome is None or (outcome.status == "wide" and not outcome.added):
            outcome = self._by_multi(state)
        return outcome

    def _by_script(self, state: Marker) -> ChunkResult | None:
        """Move a chunk with Lua; None if the server runs no scripts for this user."""
        import redis

        uuid, count = state.stages[state.stage]
        place = [state.epoch, state.stage, state.position, count]
        last = int(state.stage == len(state.stages) - 1)
        bounds = [CHUNK_ENTRIES, CHUNK_BYTES, last, MOST_WORDS]
        try:
            status, added, text = self._script(
                keys=[self._dest, self._key, self._stage(uuid)],
                args=[*place, *bounds, state.published, *self._options.trim],
            )
        except redis.ResponseError as error:
            if any(words in str(error) for words in _NO_LUA):
                self._lua = False
                return None
            raise
        return ChunkResult(status.decode(), int(added), text.decode("utf-8", "replace"))

    def _by_multi(self, state: Marker) -> ChunkResult:
        uuid, count = state.stages[state.stage]
        expected = min(CHUNK_ENTRIES, count - state.position)
        stage = self._stage(uuid)
        entries: Any = self._client.execute_command(
            "XRANGE", stage, f"{state.position + 1}-0", "+", "COUNT", expected
        )
        if len(entries) != expected or entries[-1][0] != b"%d-0" % (state.position + expected):
            # A stage is deleted by the step that ends it, perhaps by another driver's.
            return ChunkResult("missing" if self._read(self._client) == state else "moved")
        entries = _within(CHUNK_BYTES, entries)
        watched = [self._key]
        # A stream never refuses ids that the server generates, so only the key's type could change
        # before the step. If other clients write all the time, that risk is accepted.
        if self._conflicts < _PATIENT_TRIES or any(fields[1] != b"*" for _id, fields in entries):
            watched.append(self._dest)
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.watch(*watched)
            if self._read(pipeline) != state:
                return ChunkResult("moved")
            hindrance = self._look(pipeline, entries[0][1][1])
            if hindrance is not None:
                return hindrance
            pipeline.multi()
            for _id, fields in entries:
                pipeline.execute_command(
                    "XADD", self._dest, *self._options.trim, fields[1], *fields[2:]
                )
            self._move(pipeline, state, len(entries))
            replies = self._execute(pipeline)
        if replies is None:
            return ChunkResult("moved")
        return self._judge(state, replies[: len(entries)])

    def _read(self, client: Any) -> Marker | None:
        return Marker.parse(self._key, client.execute_command("HGETALL", self._key))

    def _look(self, pipeline: Any, first: bytes) -> ChunkResult | None:
        """Return why the entries would be refused, as far as that is known in advance."""
        kind = type_of(pipeline, self._dest)
        if kind not in ("none", "stream"):
            return ChunkResult("type", 0, kind)
        if first != b"*" and kind == "stream":
            last = last_id(pipeline, self._dest)
            if StreamID.parse(first.decode()) <= last:
                return ChunkResult(
                    "refused", 0, f"the id {first.decode()} is not above {last}, the stream's last"
                )
        return None

    def _move(self, pipeline: Any, state: Marker, added: int) -> None:
        moved = after(state, added)
        pipeline.hset(self._key, mapping={n: v for n, v in moved.fields().items() if n != "stages"})
        if moved.stage != state.stage or moved.done:
            pipeline.unlink(self._stage(state.stages[state.stage][0]))
        if moved.done:
            pipeline.hdel(self._key, "stages")

    def _execute(self, pipeline: Any) -> list[Any] | None:
        """Return EXEC's replies, including errors; None if a watched key had changed."""
        import redis

        try:
            replies: list[Any] = pipeline.execute(raise_on_error=False)
        except redis.WatchError:
            self._conflicts += 1
            return None
        self._conflicts = 0
        return replies

    def _judge(self, state: Marker, replies: list[Any]) -> ChunkResult:
        """Evaluate the replies of EXEC.

        A single entry can be refused, for example if the store's disk is full. Then this sets the position
        to that entry and deletes the later ones.
        """
        wrong = next((n for n, reply in enumerate(replies) if isinstance(reply, Exception)), None)
        if wrong is None:
            return ChunkResult("ok", len(replies))
        moved = after(state, wrong)
        late = [reply for reply in replies[wrong:] if not isinstance(reply, Exception)]

        def repair() -> None:
            with self._client.pipeline(transaction=True) as pipeline:
                pipeline.hset(self._key, mapping=moved.fields())
                pipeline.hdel(self._key, "done")
                if late:
                    pipeline.xdel(self._dest, *late)
                pipeline.execute()

        patiently(self._options.url, repair)
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


def _within(limit: int, entries: list[Any]) -> list[Any]:
    """Return the first ``entries`` that reach ``limit`` bytes together, at least one."""
    weight = 0
    for number, (_id, fields) in enumerate(entries):
        weight += sum(map(len, fields))
        if weight >= limit:
            return entries[: number + 1]
    return entries


def type_of(client: Any, key: str) -> str:
    """Return the reply of TYPE."""
    found: bytes = client.type(key)
    return found.decode()


def last_id(client: Any, stream: str) -> StreamID:
    """Return the last generated id of ``stream``."""
    reply: Any = client.execute_command("XINFO STREAM", stream)
    found = as_dict(reply)
    return StreamID.parse(as_text(found["last-generated-id"]))
