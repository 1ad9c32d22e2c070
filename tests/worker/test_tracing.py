"""A trace goes from the sender of a message through its retries and its result to the consumer of that."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from headwater.errors import DeclarationError
from headwater.worker import Again, App, Batch, Dead, Delivery
from headwater.worker.tracing import Tracing
from tests.worker.apps import Invoice, Order, Store, eventually, invoices, orders

pytestmark = pytest.mark.slow


class Spans:
    """What was exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [one for one in self.all() if one.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    yield found
    found.provider.shutdown()


@asynccontextmanager
async def running(app: App) -> AsyncIterator[None]:
    """Run the app with its middleware."""
    task = asyncio.create_task(app.run())
    try:
        yield
    finally:
        app.stop()
        await task


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return int(context.trace_id)


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return int(span.parent.span_id)


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return int(context.span_id)


async def test_one_trace_from_the_request_through_a_retry_to_the_result(
    store: Store, spans: Spans
) -> None:
    # Given a handler that fails once, and another that handles its result
    app = store.app(middleware=[Tracing(spans.provider)])

    @app.consumer(orders, group="g", into=invoices)
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        if not delivery.redelivered:
            raise Again
        return Invoice(order.id)

    @app.consumer(invoices, group="mail")
    async def mail(invoice: Invoice) -> None: ...

    # When a message is sent within a request
    async with running(app):
        with spans.tracer.start_as_current_span("request") as request:
            await app.send(orders, Order(17))
        await eventually(lambda: spans.named(f"settle {invoices.name}"), "the result is handled")

    # Then everything belongs to the request's trace, each span below the one that caused it
    traced = [one for one in spans.all() if not one.name.startswith("receive ")]
    assert {trace_of(one) for one in traced} == {request.get_span_context().trace_id}
    (sent,) = spans.named(f"send {orders.name}")
    first, second = spans.named(f"process {orders.name}")
    (published,) = spans.named(f"send {invoices.name}")
    (mailed,) = spans.named(f"process {invoices.name}")
    assert parent_of(sent) == request.get_span_context().span_id
    assert {parent_of(first), parent_of(second)} == {id_of(sent)}
    assert parent_of(published) == id_of(second)
    assert parent_of(mailed) == id_of(published)
    settled = spans.named(f"settle {orders.name}")
    assert [parent_of(one) for one in settled] == [id_of(first), id_of(second)]
    assert [one.attributes["headwater.ending"] for one in settled if one.attributes] == [
        "retried",
        "acknowledged",
    ]
    # And each reading is linked to the message
    for one in spans.named(f"receive {orders.name}"):
        assert [link.context.span_id for link in one.links] == [id_of(sent)]


async def test_spans_have_the_attributes_of_the_conventions(store: Store, spans: Spans) -> None:
    app = store.app(middleware=[Tracing(spans.provider)])

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        raise Dead("wrong")

    async with running(app):
        entry_id = await app.send(orders, Order(17))
        await eventually(lambda: spans.named(f"settle {orders.name}"))
    (process,) = spans.named(f"process {orders.name}")
    (settle,) = spans.named(f"settle {orders.name}")
    (sent,) = spans.named(f"send {orders.name}")
    assert (sent.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    found: Any = process.attributes
    assert found["messaging.destination.name"] == orders.name
    assert found["messaging.operation.type"] == "process"
    assert (found["messaging.message.id"], found["messaging.consumer.group.name"]) == (
        entry_id,
        "g",
    )
    assert found["headwater.deliveries"] == 1
    assert not process.status.is_ok
    assert not settle.status.is_ok


async def test_a_batch_is_linked_to_its_messages(store: Store, spans: Spans) -> None:
    app = store.app(middleware=[Tracing(spans.provider)])

    @app.batch(orders, group="g", size=3, linger="10s")
    async def load(batch: Batch[Order]) -> None: ...

    async with running(app):
        await app.send_many(orders, [Order(1), Order(2), Order(3)])
        (process,) = await eventually(lambda: spans.named(f"process {orders.name}"))
    sent = {id_of(one) for one in spans.named(f"send {orders.name}")}
    assert {link.context.span_id for link in process.links} == sent
    assert len(sent) == 3
    assert process.parent is None
    assert process.attributes
    assert process.attributes["messaging.batch.message_count"] == 3


def test_without_its_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "headwater.worker.tracing")
    monkeypatch.delitem(sys.modules, "headwater.common.trace_context")
    with pytest.raises(DeclarationError, match=r"pip install 'headwater\[otel\]'"):
        import headwater.worker.tracing  # noqa: F401


def test_the_names_of_spans_are_utf8_because_exporters_accept_nothing_else(spans: Spans) -> None:
    tracing = Tracing(spans.provider)
    name = "caf\udce9"
    tracing.before_publish(name, [])
    tracing.receive(Delivery("5-1", stream=name, group=name, consumer=name, count=1, flat=[]))
    for span in spans.all():
        texts = [span.name, *(span.attributes or {}).values()]
        assert [str(one).encode() for one in texts]
        assert span.name.endswith(r" caf\xe9")
