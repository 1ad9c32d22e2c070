"""A trace goes from the sender of a message through its worker and its result into the batch of a Spark query."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import headwater.spark
from headwater.worker import Again, App, Delivery, Stream
from headwater.worker.tracing import Tracing
from tests.spark.stores import Shop
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)


class Order(msgspec.Struct):
    id: int


class Invoice(msgspec.Struct):
    id: int


orders: Stream[Order] = Stream("orders", Order)
invoices: Stream[Invoice] = Stream("invoices", Invoice)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    yield made
    made.shutdown()


async def handled(app: App, provider: TracerProvider) -> int:
    """Send an order in a request, and wait until it is handled. Return the id of the request's trace."""
    done = asyncio.Event()

    @app.consumer(orders, group="g", into=invoices)
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        if not delivery.redelivered:
            raise Again
        done.set()
        return Invoice(order.id)

    running = asyncio.create_task(app.run())
    with provider.get_tracer("test").start_as_current_span("POST /orders") as request:
        await app.send(orders, Order(17))
    await asyncio.wait_for(done.wait(), 30)
    app.stop()
    await running
    return int(request.get_span_context().trace_id)


def run(spark: SparkSession, shop: Shop, at: Path, **options: str) -> None:
    query = (
        spark.readStream.format("headwater")
        .options(url=shop.url, stream="invoices", **options)
        .load()
        .writeStream.format("noop")
        .queryName("billing")
        .option("checkpointLocation", str(at))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_trace_goes_from_the_request_into_the_batch(
    spark: SparkSession,
    shop: Shop,
    tmp_path: Path,
    exporter: InMemorySpanExporter,
    provider: TracerProvider,
) -> None:
    # Given an order that was sent in a request, retried, and handled with a result
    app = App(shop.url, middleware=[Tracing(provider)])
    trace_id = asyncio.run(handled(app, provider))
    shop.client.xadd("invoices", {"id": "18"})  # without a trace
    exporter.clear()

    # When a query reads the result
    listener = headwater.spark.TracingListener(shop.url, provider)
    spark.streams.addListener(listener)
    try:
        run(spark, shop, tmp_path / "c")

        # Then its batch is a span with a link to the request's trace
        (span,) = eventually(lambda: batches(exporter), "the progress arrives")
        assert span.name == "process invoices"
        assert [link.context.trace_id for link in span.links] == [trace_id]
        found: Any = span.attributes
        assert found["messaging.batch.message_count"] == 2
        assert (found["headwater.query"], found["headwater.batch"]) == ("billing", 0)
        assert span.end_time > span.start_time

        # And in group mode a span without links
        exporter.clear()
        run(spark, shop, tmp_path / "g", group="spark")
        (span,) = eventually(lambda: batches(exporter), "the progress arrives")
        assert (span.name, len(span.links)) == ("process invoices", 0)
    finally:
        spark.streams.removeListener(listener)
        listener.close()


def batches(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [one for one in exporter.get_finished_spans() if one.name == "process invoices"]
