"""The traces that entries carry, and the attributes of spans about streams. Extra ``otel``.

Only this module imports the names of OpenTelemetry that tracing needs, so that a missing package causes one error.

Source: OpenTelemetry, "Semantic conventions for messaging spans"; W3C, "Trace Context".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headwater.common.names import printable
from headwater.errors import DeclarationError

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise DeclarationError(
        f"Tracing needs opentelemetry-api ({error}): pip install 'headwater[otel]'"
    ) from error

__all__ = [
    "Context",
    "Link",
    "Span",
    "SpanKind",
    "StatusCode",
    "TracerProvider",
    "attributes_of",
    "carried",
    "context_of",
    "links_to",
    "trace",
]

_PROPAGATOR = TraceContextTextMapPropagator()

Fields = Sequence[tuple[bytes, bytes]]


def context_of(fields: Fields) -> Context:
    """Return the context that an entry carries; an empty one if it carries none."""
    carrier = {
        name.decode(): value.decode("ascii", "replace")
        for name, value in fields
        if name in (b"traceparent", b"tracestate")
    }
    return _PROPAGATOR.extract(carrier, Context())


def carried(span: Span) -> list[tuple[bytes, bytes]]:
    """Return the fields by which an entry carries the context of ``span``."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return [(name.encode(), value.encode()) for name, value in carrier.items()]


def links_to(entries: Iterable[Fields]) -> list[Link]:
    """Return links to the traces that entries carry."""
    contexts = (trace.get_current_span(context_of(one)).get_span_context() for one in entries)
    return [Link(context) for context in contexts if context.is_valid]


def attributes_of(stream: str, operation: str) -> dict[str, Any]:
    """Return the attributes of a span for an operation on a stream. Exporters accept only UTF-8."""
    return {
        "messaging.system": "redis",
        "messaging.destination.name": printable(stream),
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
