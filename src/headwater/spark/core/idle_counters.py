"""The counters of streams as an idle query asks for them: ten times a second, only to compare them.

After 100 ms the processor's caches no longer hold what a poll uses, so that packing the names and parsing the counters of
a thousand streams is slow. Requests are therefore packed once. A server that runs scripts returns a digest, except on a
cluster, where a script has the keys of one slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.errors import Disconnected, HeadwaterError
from headwater.groups.protocol.operation import batched
from headwater.spark.core.counters import DIGEST
from headwater.spark.core.store import COUNTED_TOGETHER, SourceStore

if TYPE_CHECKING:
    import redis


class IdleCounters:
    """Asks for the counters of the streams of one query."""

    def __init__(self) -> None:
        self._store: SourceStore | None = None
        self._streams: list[str] = []
        self._requests: list[_Request] = []
        self._seen: list[Any] = []
        self._divided = False

    def now(self, store: SourceStore, streams: list[str]) -> list[Any] | None:
        """Return something that differs from the result before if the streams or their counters do; None if the
        server refused."""
        try:
            if store.clustered:
                parts = batched(streams, COUNTED_TOGETHER)
                return [streams, *(store.script_counters(names) for names in parts)]
            if store is not self._store or streams != self._streams:
                self._begin(store, streams)
            replies = self._replies()
            if self._divided and replies != self._seen:
                self._begin(store, streams)  # their entries may have become smaller
            self._seen = replies
            return [streams, *replies]
        except Disconnected:
            raise
        except HeadwaterError:
            return None

    def _begin(self, store: SourceStore, streams: list[str]) -> None:
        self._store, self._streams = store, streams
        self._requests = [_Request(store, names) for names in batched(streams, COUNTED_TOGETHER)]
        self._divided = False

    def _replies(self) -> list[Any]:
        replies: list[Any] = []
        while len(replies) < len(self._requests):
            at = len(replies)
            request = self._requests[at]
            reply, looked_at = request.ask()
            replies.append(reply)
            if looked_at < len(request.streams):  # their entries are large
                self._requests[at : at + 1] = request.divided(looked_at)
                self._divided = True
        return replies


class _Request:
    """A request for the counters of ``streams``, or for a digest of them, on one server."""

    def __init__(self, store: SourceStore, streams: list[str]) -> None:
        self._store = store
        self.streams = streams
        self._words: list[str | int] = ["EVALSHA", DIGEST.digest, len(streams), *streams]
        if store.splits:
            self._words = ["XCOUNTERS", *streams]
        self._packed: list[bytes] | None = None

    def ask(self) -> tuple[Any, int]:
        """Return what the server answers, and for how many of the streams."""
        reply = self._store.patiently(self._send)
        return (reply, len(self.streams)) if self._store.splits else (reply, int(reply[0]))

    def divided(self, at: int) -> tuple[_Request, _Request]:
        """Return a request for the first ``at`` streams, and one for the others."""
        return _Request(self._store, self.streams[:at]), _Request(self._store, self.streams[at:])

    def _send(self) -> Any:
        import redis

        pool = self._store.client.connection_pool
        connection: redis.Connection = pool.get_connection()
        try:
            if self._packed is None:
                self._packed = connection.pack_command(*self._words)
            connection.send_packed_command(self._packed)
            try:
                return connection.read_response()
            except redis.exceptions.NoScriptError:
                # Users may be permitted SCRIPT LOAD without EVAL.
                connection.send_command("SCRIPT LOAD", DIGEST.text)
                connection.read_response()
                connection.send_packed_command(self._packed)
                return connection.read_response()
        except redis.ResponseError:
            raise
        except BaseException:
            connection.disconnect()  # its reply may still come
            raise
        finally:
            pool.release(connection)
