"""Declarations that `@app.batch` refuses, and its defaults."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import DeclarationError
from headwater.worker import Batch, Delivery
from tests.worker.apps import Invoice, Order, orders
from tests.worker.test_batches import memory_app


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "size=0 must be a whole number"),
        ({"size": 10_001}, "more than 10,000"),
        ({"size": True}, "size=True must be a whole number"),
        ({"linger": "soon"}, "linger"),
        ({"linger": "30s"}, "linger='30s' must be shorter than claim_after"),
        ({"max_deliveries": 1}, "max_deliveries=1 allows only one"),
        ({"size": 10, "prefetch": 9}, "prefetch=9 is less than 10"),
        ({"size": 10, "prefetch": 19, "concurrency": 2}, "prefetch=19 is less than 20"),
        ({"lingre": "1s"}, "unknown option 'lingre'"),
    ],
)
def test_invalid_batch_options_are_refused(options: dict[str, Any], words: str) -> None:
    async def load(rows: Batch[Order]) -> None: ...

    with pytest.raises(DeclarationError, match=words):
        memory_app().batch(orders, group="g", **options)(load)


def test_a_handler_without_a_batch_parameter_of_the_stream_is_refused() -> None:
    async def one(order: Order) -> None: ...
    async def many(rows: list[Order]) -> None: ...
    async def others(rows: Batch[Invoice]) -> None: ...
    async def with_delivery(rows: Batch[Order], delivery: Delivery) -> None: ...

    for handler in (one, many, others):
        with pytest.raises(DeclarationError, match=r"gets a Batch\[.*Order\]"):
            memory_app().batch(orders, group="g")(handler)
    with pytest.raises(DeclarationError, match="a batch has no single Delivery"):
        memory_app().batch(orders, group="g")(with_delivery)


def test_the_error_for_a_consumer_with_a_batch_parameter_names_app_batch() -> None:
    async def load(rows: Batch[Order]) -> None: ...

    with pytest.raises(DeclarationError, match=r"one of @app\.batch gets a Batch"):
        memory_app().consumer(orders, group="g")(load)


def test_the_default_prefetch_holds_one_batch_more_than_run_at_once() -> None:
    app = memory_app()

    @app.batch(orders, group="a")
    async def one(rows: Batch[Order]) -> None: ...

    @app.batch(orders, group="b", size=10, concurrency=3)
    async def three(rows: Batch[Order]) -> None: ...

    assert [(c.concurrency, c.prefetch) for c in app.consumers] == [(1, 1000), (3, 40)]
