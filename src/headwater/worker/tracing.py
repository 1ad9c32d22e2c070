"""OpenTelemetry spans for every message: sent, received, processed, settled. Extra ``otel``.

    send orders ──traceparent──▶ receive orders    (a link)
                            └──▶ process orders ──▶ send invoices
                                        └─────────▶ settle orders

Rule 1. The trace continues in the entry's field ``traceparent``, so a retry, a claim by another worker and a Spark
        query belong to the same trace. A batch has links to the traces of its messages instead.
Rule 2. Spans have the names and attributes of the semantic conventions for messaging. Exporters accept only UTF-8, so
        other bytes of a name are written in the form ``\\xff``.

Source: OpenTelemetry, "Semantic conventions for messaging spans"; W3C, "Trace Context".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from headwater.common.names import printable
from headwater.common.trace_context import (
    Context,
    Span,
    SpanKind,
    StatusCode,
    TracerProvider,
    attributes_of,
    carried,
    context_of,
    links_to,
    trace,
)
from headwater.messages.keys import TRACE_FIELDS, Pairs
from headwater.worker.declare.batches import Batch
from headwater.worker.declare.delivery import Delivery
from headwater.worker.declare.middleware import Middleware
from headwater.worker.declare.outcome import Ending

T = TypeVar("T")

MOST = 10_000

_handled: ContextVar[Context | None] = ContextVar("headwater_handled", default=None)
"""The context of the delivery that this task handles or has just handled. The results are sent in this context."""


class Tracing(Middleware):
    """Middleware that makes a trace of every message.

    Use it as ``App(middleware=[Tracing()])``. ``provider`` is a TracerProvider. The default is the global one,
    which the program configures.
    """

    __module__ = "headwater.worker.tracing"

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("headwater", tracer_provider=provider)
        self._processed: dict[tuple[str, str, str], Context] = {}
        """The contexts of the process spans of deliveries that are not settled yet."""
        self._settling: dict[tuple[str, str, str], Span] = {}

    def before_publish(self, stream: str, fields: Pairs) -> None:
        parent = None
        if not trace.get_current_span().get_span_context().is_valid:
            parent = _handled.get()
        span = self._tracer.start_span(
            f"send {printable(stream)}",
            parent,
            kind=SpanKind.PRODUCER,
            attributes=attributes_of(stream, "send"),
        )
        span.end()
        mutable: Any = fields
        mutable[:] = [
            one for one in fields if one[0].decode("utf-8", "replace") not in TRACE_FIELDS
        ]
        mutable += carried(span)

    def receive(self, delivery: Delivery) -> None:
        links = links_to([delivery.fields])
        attributes = _of_delivery(delivery, "receive")
        name = f"receive {printable(delivery.stream)}"
        self._tracer.start_span(
            name, kind=SpanKind.CLIENT, links=links, attributes=attributes
        ).end()

    async def handle(
        self, delivery: Delivery, message: Any, call_next: Callable[[], Awaitable[Any]]
    ) -> Any:
        parent, links = context_of(delivery.fields), []
        attributes = _of_delivery(delivery, "process")
        if isinstance(message, Batch):
            parent, links = Context(), links_to([one.fields for one in message.deliveries])
            attributes["messaging.batch.message_count"] = len(message)
        with self._tracer.start_as_current_span(
            f"process {printable(delivery.stream)}",
            parent,
            kind=SpanKind.CONSUMER,
            links=links,
            attributes=attributes,
        ) as span:
            context = trace.set_span_in_context(span)
            _handled.set(context)
            _keep(self._processed, _key(delivery), context)
            return await call_next()

    def before_settle(self, delivery: Delivery, ending: Ending) -> None:
        parent = self._processed.pop(_key(delivery), None) or context_of(delivery.fields)
        attributes = _of_delivery(delivery, "settle")
        attributes["headwater.ending"] = ending.value
        name = f"settle {printable(delivery.stream)}"
        span = self._tracer.start_span(name, parent, kind=SpanKind.CLIENT, attributes=attributes)
        if ending is Ending.DEAD:
            span.set_status(StatusCode.ERROR, "dead letter")
        _keep(self._settling, _key(delivery), span)

    def after_settle(self, delivery: Delivery, ending: Ending) -> None:  # noqa: ARG002  # Middleware's
        span = self._settling.pop(_key(delivery), None)
        if span is not None:
            span.end()


def _keep(kept: dict[tuple[str, str, str], T], key: tuple[str, str, str], value: T) -> None:
    """Keep a value until its delivery is settled, but only for the last `MOST` deliveries: an entry that another
    worker owns is never settled here."""
    kept[key] = value
    if len(kept) > MOST:
        del kept[next(iter(kept))]


def _key(delivery: Delivery) -> tuple[str, str, str]:
    return delivery.stream, delivery.group, delivery.id


def _of_delivery(delivery: Delivery, operation: str) -> dict[str, Any]:
    return {
        **attributes_of(delivery.stream, operation),
        "messaging.message.id": delivery.id,
        "messaging.consumer.group.name": printable(delivery.group),
        "messaging.client.id": printable(delivery.consumer),
        "headwater.deliveries": delivery.count,
    }
