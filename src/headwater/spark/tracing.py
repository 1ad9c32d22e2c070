"""OpenTelemetry spans for the batches of Spark's queries, with links to the traces of their entries. Extra ``otel``.

    send orders ─▶ process orders ─▶ send invoices ◀── a link ── process invoices (a batch)

Rule 1. A batch has one span, from its trigger to its end, for each stream that it has read. The span links to the
        traces of the batch's first entries in that stream, at most `LINKS` of them.
Rule 2. For the links, the entries are read again after the batch, by the ids in Spark's progress. If they
        cannot be read, the span has no links: tracing never ends a query.
Rule 3. In group mode the progress does not name entries, so the span has no links.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import redis
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headwater.client.redaction import redacted
from headwater.common.names import printable
from headwater.common.trace_context import (
    Link,
    SpanKind,
    TracerProvider,
    attributes_of,
    links_to,
    trace,
)
from headwater.errors import HeadwaterError
from headwater.spark.core.connection import connect
from headwater.spark.core.positions import ReadSpan
from headwater.spark.log_mode.offsets import spans_of

_log = logging.getLogger("headwater.spark")

LINKS: Final = 128
"""The default limit of OpenTelemetry's SDK for the links of a span."""


class TracingListener(StreamingQueryListener):
    """Makes spans for the batches of a session's queries. For links, it reads entries from the store at ``url``.

        spark.streams.addListener(TracingListener("redis://localhost:6379"))

    ``provider`` creates the spans; None uses the global TracerProvider, which the program configures.
    """

    def __init__(self, url: str, provider: TracerProvider | None = None) -> None:
        self._url = url
        self._client = connect(url)
        self._tracer = trace.get_tracer("headwater", tracer_provider=provider)

    def close(self) -> None:
        """Close the connection to the store."""
        self._client.close()

    # --- called by Spark --------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Make the spans of a batch."""
        progress = event.progress
        began = round(datetime.fromisoformat(progress.timestamp).timestamp() * 1e9)
        ended = began + progress.durationMs.get("triggerExecution", 0) * 1_000_000
        for source in progress.sources:
            for stream, read in _read_by(source):
                attributes = attributes_of(stream, "process") | {
                    "messaging.batch.message_count": source.numInputRows
                    if read is None
                    else read.end.added - read.start.added,
                    "headwater.query": progress.name or str(progress.id),
                    "headwater.batch": progress.batchId,
                }
                self._tracer.start_span(
                    f"process {printable(stream)}",
                    kind=SpanKind.CONSUMER,
                    links=[] if read is None else self._links(stream, read),
                    attributes=attributes,
                    start_time=began,
                ).end(ended)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    # --- the entries ------------------------------------------------------------------------------

    def _links(self, stream: str, read: ReadSpan) -> list[Link]:
        try:
            # A bytes name: for a str, redis-py would turn the reply into objects of its own.
            rows: Any = self._client.execute_command(
                b"XRANGE", stream, f"({read.start.id}", str(read.end.id), "COUNT", LINKS
            )
        except (redis.RedisError, HeadwaterError, OSError) as error:
            _log.warning("%s: no links to the traces of %s: %s", redacted(self._url), stream, error)
            return []
        return links_to(list(zip(body[::2], body[1::2], strict=True)) for _id, body in rows)


def _read_by(source: Any) -> Iterator[tuple[str, ReadSpan | None]]:
    """Yield each stream from which a batch has read entries, and the range that was read, from Spark's progress on
    one source. The range is None in group mode. Yields nothing for a source that is not Headwater's."""
    if not source.numInputRows:
        return
    try:
        end = json.loads(source.endOffset)
        if "group" in end:
            yield from ((stream, None) for stream in end.get("streams", {}))
            return
        spans = spans_of(end)
    except (ValueError, AttributeError, TypeError, HeadwaterError):
        return
    yield from (
        (stream, span) for stream, span in spans.items() if span.end.added > span.start.added
    )
