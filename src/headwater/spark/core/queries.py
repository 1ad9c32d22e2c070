"""Stores the position of each query that reads a stream, in the hash ``{stream}:hw:queries``.

In log mode no group shows which entries are still needed. Therefore each query stores in that hash, for each of
its streams, the id up to which it has read and committed. An archive does not trim beyond that id.

Rule 1. A stored id is never ahead of the query. It is written when Spark requests the next batch, after the
        previous batch is in Spark's commit log.
Rule 2. A stored id may be behind. If ACL rules forbid the write, it is missing: the query continues, logs one
        warning, and trimming does not wait for the query.
Rule 3. A query deletes its line for a stream that was removed. If the key exists again, it writes a new line.
Rule 4. A query that will never run again leaves its line. A running query renews ``at_ms`` once a minute,
        so trimming recognises abandoned lines by their age.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from headwater.common.model import StreamID
from headwater.errors import HeadwaterError
from headwater.messages.keys import queries_key
from headwater.spark.core.replies import as_text

if TYPE_CHECKING:
    import redis

    from headwater.spark.core.store import SourceStore

_log = logging.getLogger("headwater.spark")

RENEW_MS: Final = 60_000
"""Age at which a running query that has nothing to read renews its line, in milliseconds."""


class Committed(NamedTuple):
    """One query's line for one stream: at ``at_ms``, the query had read and committed up to ``id``.

    ``app`` is the query's process, as ``host:pid``; empty if unknown. ``at_ms`` is the time on the query's host.
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
    """Return the line of each query of ``stream``, the one furthest behind first.

    Raises `HeadwaterError` for a line in another format.
    """
    key = queries_key(stream)
    found = []
    for query, line in client.hgetall(key).items():
        try:
            read = msgspec.json.decode(line, type=_Line)
            found.append(Committed(as_text(query), StreamID.parse(read.to), read.at, read.app))
        except ValueError as error:  # also the base class of msgspec's errors
            raise HeadwaterError(
                f"the hash {key!r} has the line {as_text(query)!r}, which no query wrote "
                f"({error}). If none of your programs needs it: HDEL {key} {as_text(query)}"
            ) from error
    return sorted(found, key=lambda one: (one.id, one.query))


class Register:
    """Writes the lines of one running query."""

    def __init__(self, store: SourceStore, query: str) -> None:
        self._store = store
        self._query = query
        self._app = f"{socket.gethostname()}:{os.getpid()}"
        self._written: dict[str, tuple[StreamID, int]] = {}
        self._left: set[str] = set()
        self._refused = False

    def record(self, ends: Mapping[str, StreamID], *, now_ms: int | None = None) -> None:
        """Write the id up to which each stream is committed, if the id changed or its line is a minute old."""
        now = int(time.time() * 1000) if now_ms is None else now_ms
        due = [
            stream
            for stream, end in ends.items()
            if (known := self._written.get(stream)) is None
            or known[0] != end
            or now - known[1] >= RENEW_MS
        ]
        if self._refused or not due:
            return
        lines = [msgspec.json.encode(_Line(str(ends[stream]), now, self._app)) for stream in due]
        replies = self._store.ask_all(
            ("HSET", queries_key(stream), self._query, line)
            for stream, line in zip(due, lines, strict=True)
        )
        for stream, reply in zip(due, replies, strict=True):
            if isinstance(reply, Exception):
                self._refused = True
                _log.warning(
                    "this query cannot store how far it has read (%s). It continues, but an archive "
                    "that trims its streams does not wait for it. The user needs HSET on %s.",
                    reply,
                    queries_key(stream),
                )
                return
            self._written[stream] = ends[stream], now
            self._left.discard(stream)

    def leave(self, streams: Iterable[str]) -> None:
        """Delete the query's lines for streams that were removed, once per stream and run."""
        due = [stream for stream in streams if stream not in self._left]
        if self._refused or not due:
            return
        # A refusal is not logged: trimming forgets a remaining line by its age (rule 4).
        self._store.ask_all(("HDEL", queries_key(stream), self._query) for stream in due)
        self._left.update(due)
        for stream in due:
            self._written.pop(stream, None)
