"""Mistakes of beginners are refused at the declaration, with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest

from headwater.errors import DeclarationError
from headwater.worker import App, Backoff, Batch, Delivery, Stream, Use


class Order(msgspec.Struct):
    id: int


orders: Stream[Order] = Stream("orders", Order)
invoices: Stream[Order] = Stream("invoices", Order)


def new_app() -> App:
    return App("headwater://memory", name="test")


async def handle(order: Order) -> None: ...


def count_of(delivery: Delivery | None) -> int:
    return 0 if delivery is None else delivery.count


def of_consumer(app: App) -> Callable[..., Any]:
    return app.consumer


def of_batch(app: App) -> Callable[..., Any]:
    return app.batch


@pytest.mark.parametrize("decorator", [of_consumer, of_batch])
def test_a_decorator_without_its_parentheses_is_refused(
    decorator: Callable[[App], Callable[..., Any]],
) -> None:
    with pytest.raises(
        DeclarationError, match=r"handle.* is not a Stream: .*\(orders, group='billing'\)"
    ):
        decorator(new_app())(handle)


@pytest.mark.parametrize("decorator", [of_consumer, of_batch])
def test_a_consumer_without_a_group_is_refused(
    decorator: Callable[[App], Callable[..., Any]],
) -> None:
    with pytest.raises(DeclarationError, match="a consumer needs group="):
        decorator(new_app())(orders)


def test_use_as_a_default_is_refused() -> None:
    async def bill(order: Order, db: int = Use(lambda: 1)) -> None:  # type: ignore[assignment]
        ...

    with pytest.raises(DeclarationError, match=r"'db': write db: Annotated\[…, Use\("):
        new_app().consumer(orders, group="g")(bill)


def test_a_handler_with_only_keyword_parameters_is_refused() -> None:
    async def bill(**anything: Any) -> None: ...

    with pytest.raises(DeclarationError, match="takes no message"):
        new_app().consumer(orders, group="g")(bill)


async def test_a_parameter_of_optional_delivery_gets_the_delivery() -> None:
    seen: list[int] = []
    app = new_app()

    @app.consumer(orders, group="g")
    async def bill(
        order: Order,
        count: Annotated[int, Use(count_of, scope="delivery")],
        delivery: Delivery | None = None,
    ) -> None:
        assert delivery is not None
        seen.append(delivery.count + count)

    async with app.test() as t:
        await t.send(orders, Order(id=1))
    assert seen == [2]


def test_an_optional_delivery_of_a_batch_is_refused() -> None:
    async def load(rows: Batch[Order], delivery: Delivery | None = None) -> None: ...

    with pytest.raises(DeclarationError, match="a batch has no single Delivery"):
        new_app().batch(orders, group="g")(load)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"delete": "yes"}, "delete='yes' must be True or False"),
        ({"concurrency": 100_001}, "concurrency=100001 must be at most 100,000"),
        ({"into": invoices, "dead": "invoices"}, "into and dead are both 'invoices'"),
        ({"into": Stream("{orders}.dead", Order)}, "into and dead are both '{orders}.dead'"),
    ],
)
def test_options_that_a_worker_cannot_apply_are_refused(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(DeclarationError, match=complaint):
        new_app().consumer(orders, group="g", **options)(handle)


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 1e10, "2", None, True])
def test_an_invalid_factor_is_refused(factor: Any) -> None:
    with pytest.raises(DeclarationError, match=r"factor=.* must be a number from 1 to 1,000"):
        Backoff("1s", factor=factor)


@pytest.mark.parametrize("jitter", [float("nan"), "0.2", None])
def test_a_jitter_that_is_not_a_fraction_is_refused(jitter: Any) -> None:
    with pytest.raises(DeclarationError, match=r"jitter=.* must be at least 0 and less than 1"):
        Backoff("1s", jitter=jitter)


@pytest.mark.parametrize("maxlen", [True, 2**63, "5"])
def test_a_length_that_no_server_accepts_is_refused(maxlen: Any) -> None:
    with pytest.raises(DeclarationError, match=r"maxlen=.* must be an integer, at least 1"):
        Stream("orders", Order, maxlen=maxlen)


async def test_a_consumer_declared_while_the_app_runs_is_refused() -> None:
    app = new_app()
    app.consumer(orders, group="g")(handle)
    async with app.test():
        with pytest.raises(DeclarationError, match=r"the declaration of .*late comes too late"):

            @app.consumer(orders, group="late")
            async def late(order: Order) -> None: ...

        with pytest.raises(DeclarationError, match="comes too late"):
            app.on_dead(orders)(lambda letter: None)
    assert len(app.consumers) == 1
