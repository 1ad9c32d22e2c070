"""Pauses between polls that find nothing.

Spark polls an idle source again after 10 ms, unless the query's trigger has an interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import Disconnected, HeadwaterError
from headwater.groups.protocol.operation import batched
from headwater.spark.core.counters import DIGEST
from headwater.spark.core.store import COUNTED_TOGETHER, SourceStore

if TYPE_CHECKING:
    import redis

LONGEST_PAUSE_S: Final = 0.1
_FIRST_PAUSE_S: Final = 0.005
_SLOW_PAUSE_S: Final = 1.0
_SHARE: Final = 4


class IdlePauses:
    """Delays each poll that follows a poll without a result: first by 5 ms, then twice as long each time, up to
    `LONGEST_PAUSE_S`. After a slow poll, the delay is four times the poll's duration, but at most a second.

    >>> now, slept = 0.0, []
    >>> pauses = IdlePauses(clock=lambda: now, sleep=slept.append)
    >>> for something in (True, False, False, True, False):
    ...     pauses.wait()
    ...     pauses.polled(found=something)
    >>> slept
    [0.005, 0.01]
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._pause = 0.0
        self._began = self._polled = 0.0

    def wait(self) -> None:
        """Wait before a poll if the previous poll found nothing and its pause has not passed yet."""
        rest = self._polled + self._pause - self._clock()
        if rest > 0:
            self._sleep(rest)
        self._began = self._clock()

    def polled(self, *, found: bool) -> None:
        """Record the end of a poll, and whether it found anything."""
        self._polled = self._clock()
        if found:
            self._pause = 0.0
            return
        doubled = min(LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * self._pause))
        took = self._polled - self._began
        self._pause = max(doubled, min(_SLOW_PAUSE_S, _SHARE * took))


# --- counters, asked for ten times a second only to compare them ----------------------------------
#
# After 100 ms the processor's caches no longer hold a poll's data, so packing the names and parsing the counters of a
# thousand streams is slow. Requests are therefore packed once. A server that runs scripts returns a digest, except on a
# cluster, where a script has the keys of one slot.


class IdleCounters:
    """Asks for the counters of the streams of one query."""

    def __init__(self) -> None:
        self._store: SourceStore | None = None
        self._streams: list[str] = []
        self._requests: list[_Request] = []
        self._seen: list[Any] = []
        self._divided = False

    def now(self, store: SourceStore, streams: list[str]) -> list[Any] | None:
        """Return a value that differs from the previous one if the streams or their counters do; None if the server
        refused."""
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
        """Return the server's reply, and the number of streams that it covers."""
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
            connection.disconnect()  # its reply may still arrive
            raise
        finally:
            pool.release(connection)
