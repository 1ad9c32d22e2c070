"""Which queries read a stream, and how far each has committed: the hash ``{stream}:hw:queries``.

A stream in log mode has no group that shows who still needs what. So each query leaves here, for
each of its streams, the id up to which it has read and committed; an archive trims no further.

Rule 1. What stands here is never ahead of the query: it is written when Spark asks for the batch
        after, which it does when the one before is in its commit log.
Rule 2. It may be behind, or missing where the access list forbids writing: the query reads all the
        same, says so once, and is then not waited for.
Rule 3. A query that will never run again leaves its line. ``at_ms`` is renewed once a minute while a
        query runs, so who trims can tell by age.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from headwater.errors import Disconnected, HeadwaterError
from headwater.messages.keys import queries_key
from headwater.model import StreamID
from headwater.spark.core.replies import as_text

if TYPE_CHECKING:
    import redis

    from headwater.spark.core.store import SourceStore

_log = logging.getLogger("headwater.spark")

RENEW_MS: Final = 60_000
"""How old a line gets while its query runs and has nothing to read."""


class Committed(NamedTuple):
    """What one query said of one stream: read and committed up to ``id``, as of ``at_ms``.

    ``app`` is where it ran, ``host:pid``. Times are the query's, in Unix milliseconds.
    """

    query: str
    id: StreamID
    at_ms: int
    app: str


class _Line(msgspec.Struct):
    """A value of the hash, as JSON."""

    to: str
    at: int
    app: str = ""


def committed(client: redis.Redis, stream: str) -> list[Committed]:
    """What each query has committed of ``stream``, those furthest behind first.

    Raises `HeadwaterError` for a line that nobody here has written.
    """
    key = queries_key(stream)
    found = []
    for query, line in client.hgetall(key).items():
        try:
            read = msgspec.json.decode(line, type=_Line)
            found.append(Committed(as_text(query), StreamID.parse(read.to), read.at, read.app))
        except ValueError as error:  # msgspec's errors are
            raise HeadwaterError(
                f"the hash {key!r} has the line {as_text(query)!r}, which is none of a query's "
                f"({error}). If nothing of yours needs it: HDEL {key} {as_text(query)}"
            ) from error
    return sorted(found, key=lambda one: (one.id, one.query))


def forget(client: redis.Redis, stream: str, *queries: str) -> int:
    """Take out the lines of ``queries``, which will not run again; how many there were."""
    return client.hdel(queries_key(stream), *queries) if queries else 0


class Register:
    """What one running query writes."""

    def __init__(self, store: SourceStore, query: str) -> None:
        self._store = store
        self._query = query
        self._app = f"{socket.gethostname()}:{os.getpid()}"
        self._written: dict[str, tuple[StreamID, int]] = {}
        self._refused = False

    def record(self, ends: Mapping[str, StreamID], *, now_ms: int | None = None) -> None:
        """Write up to where each stream is committed, where that is news or a minute old."""
        now = int(time.time() * 1000) if now_ms is None else now_ms
        for stream, end in ends.items():
            known, at = self._written.get(stream, (None, 0))
            if self._refused or (end == known and now - at < RENEW_MS):
                continue
            line = msgspec.json.encode(_Line(str(end), now, self._app))
            try:
                self._store.ask("HSET", queries_key(stream), self._query, line)
            except Disconnected:
                raise
            except HeadwaterError as error:
                self._refused = True
                _log.warning(
                    "this query cannot write down how far it has read (%s). It goes on; an archive "
                    "that trims its streams does not wait for it. The user needs HSET on %s.",
                    error,
                    queries_key(stream),
                )
                return
            self._written[stream] = end, now
