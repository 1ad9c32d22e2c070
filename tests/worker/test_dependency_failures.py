"""How dependencies that fail, hang or do not close affect the delivery and the worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from headwater.worker import Again, App, Dead, Use
from headwater.worker.declare.lifespan import StartFailed
from tests.worker.apps import Invoice, Order, Store, eventually, invoices, orders
from tests.worker.runs import run

calls: list[str] = []
"""Calls that the providers of this module made."""


@pytest.fixture(autouse=True)
def _clear_calls() -> None:
    calls.clear()


async def open_pool() -> AsyncIterator[str]:
    calls.append("open pool")
    yield "pool"
    calls.append("close pool")


async def open_cache(pool: Annotated[str, Use(open_pool)]) -> AsyncIterator[str]:
    calls.append("open cache")
    yield f"cache on {pool}"
    calls.append("close cache")


# --- failures -------------------------------------------------------------------------------------


failing: dict[str, BaseException] = {}
"""What ``fragile`` raises when it opens, and when it closes."""


async def fragile() -> AsyncIterator[str]:
    if "open" in failing:
        raise failing["open"]
    try:
        yield "fragile"
    except BaseException as error:
        calls.append(f"saw {type(error).__name__}")
        if "suppress" not in failing:
            raise
    if "close" in failing:
        raise failing["close"]


Fragile = Annotated[str, Use(fragile, scope="delivery")]


@pytest.fixture
def fail() -> Iterator[dict[str, BaseException]]:
    failing.clear()
    yield failing
    failing.clear()


@pytest.mark.parametrize("when", ["open", "close"])
@pytest.mark.parametrize("error", [ConnectionError("no database"), SystemExit(3), StopIteration()])
async def test_a_failing_dependency_fails_the_delivery(
    when: str, error: BaseException, fail: dict[str, BaseException]
) -> None:
    # Given a dependency that fails to open, or to close
    app = App("headwater://memory")
    fail[when] = error

    @app.consumer(orders, group="g", into=invoices)
    async def bill(order: Order, what: Fragile) -> Invoice:
        return Invoice(order.id)

    async with app.test() as t:
        await t.send(orders, Order(1))
        assert t.results(invoices) == []

        # When it works again, then the message is handled
        fail.clear()
        await t.advance("2s")
        assert t.results(invoices) == [Invoice(1)]
        assert t.deliveries(bill) == [1, 2]


async def test_a_dependency_sees_the_error_of_the_handler_and_cannot_suppress_it(
    fail: dict[str, BaseException],
) -> None:
    app = App("headwater://memory")
    fail["suppress"] = ValueError()

    @app.consumer(orders, group="g")
    async def bill(order: Order, what: Fragile) -> None:
        raise Dead("unknown customer")

    async with app.test() as t:
        await t.send(orders, Order(1))
        (letter,) = t.dead(orders)
        assert letter.error == "headwater.Dead: unknown customer"
    assert calls == ["saw Dead"]


async def test_the_error_of_the_handler_takes_precedence_over_an_error_in_closing(
    fail: dict[str, BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    app = App("headwater://memory")
    fail.update(suppress=ValueError(), close=ConnectionError("no rollback"))

    @app.consumer(orders, group="g")
    async def bill(order: Order, what: Fragile) -> None:
        raise Dead("unknown customer")

    async with app.test() as t:
        await t.send(orders, Order(1))
        (letter,) = t.dead(orders)
        assert letter.error == "headwater.Dead: unknown customer"
    assert "closing the dependencies of" in caplog.text
    assert "no rollback" in caplog.text


async def test_a_dependency_sees_the_error_of_a_result_that_cannot_be_published(
    fail: dict[str, BaseException],
) -> None:
    # Given a handler whose result is not a message of its stream, and a dependency
    app = App("headwater://memory")

    @app.consumer(orders, group="g", into=invoices, max_deliveries=1)
    async def bill(order: Order, what: Fragile) -> Any:
        return "not an invoice"

    # Then the dependency sees the error, so a transaction would be rolled back
    async with app.test() as t:
        await t.send(orders, Order(1))
        assert len(t.dead(orders)) == 1
    assert calls == ["saw TypeError"]


async def hanging() -> AsyncIterator[str]:
    try:
        calls.append("hangs")
        await asyncio.Event().wait()
        yield ""
    finally:
        calls.append("cancelled")


async def test_a_dependency_that_hangs_is_cancelled_at_the_timeout() -> None:
    app = App("headwater://memory")

    @app.consumer(orders, group="g", timeout="1s", max_deliveries=1)
    async def bill(
        order: Order,
        pool: Annotated[str, Use(open_pool, scope="delivery")],
        what: Annotated[str, Use(hanging, scope="delivery")],
    ) -> None: ...

    async with app.test() as t:
        await t.send(orders, Order(1))
        await t.advance("1s")
        (letter,) = t.dead(orders)
        assert letter.error == "TimeoutError: it ran longer than 1 s"
    # The dependency that was open is closed: its generator received the cancellation.
    assert calls == ["open pool", "hangs", "cancelled"]


async def test_a_stop_closes_the_dependencies_of_interrupted_handlers(store: Store) -> None:
    app = store.app(grace="0s")

    @app.consumer(orders, group="g")
    async def bill(order: Order, pool: Annotated[str, Use(open_pool)], what: Fragile) -> None:
        calls.append("begun")
        await asyncio.Event().wait()

    async with run(app):
        await app.send(orders, Order(1))
        await eventually(lambda: "begun" in calls)
    assert calls == ["open pool", "begun", "saw CancelledError", "close pool"]


# --- process dependencies -------------------------------------------------------------------------


async def broken() -> str:
    raise ConnectionError("no database")


async def leaving() -> str:
    raise SystemExit(0)


async def confused() -> str:
    raise asyncio.CancelledError


@pytest.mark.parametrize("provider", [broken, leaving, confused])
async def test_a_worker_whose_dependency_cannot_be_opened_ends_with_an_error_that_names_it(
    provider: Any,
) -> None:
    # Given two dependencies, of which the second fails
    app = App("headwater://memory")

    async def first(order: Order, pool: Annotated[str, Use(open_pool)]) -> None: ...

    async def handle(order: Order, what: Any) -> None: ...

    handle.__annotations__["what"] = Annotated[str, Use(provider)]
    app.consumer(orders, group="f")(first)
    app.consumer(orders, group="g")(handle)

    # When the app runs, then it raises an error that names the second, and the first is closed
    with pytest.raises(StartFailed, match=f"^{provider.__name__} failed at the start: "):
        await app.run()
    with pytest.raises(StartFailed):
        async with app.test():
            pass
    assert calls == ["open pool", "close pool"] * 2


async def test_a_stop_interrupts_the_opening_of_a_dependency(store: Store) -> None:
    app = store.app()

    @app.consumer(orders, group="g")
    async def bill(order: Order, what: Annotated[str, Use(hanging)]) -> None: ...

    async with run(app):
        await eventually(lambda: calls == ["hangs"])
    assert calls == ["hangs", "cancelled"]
    assert not await store.look.exists("orders")


async def test_cancelling_a_run_interrupts_the_opening_of_a_dependency(
    store: Store,
) -> None:
    app = store.app()

    @app.consumer(orders, group="g")
    async def bill(order: Order, what: Annotated[str, Use(hanging)]) -> None: ...

    task = asyncio.create_task(app.run())
    await eventually(lambda: calls == ["hangs"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls == ["hangs", "cancelled"]


async def closes_badly() -> AsyncIterator[str]:
    yield ""
    calls.append("bad")
    raise ValueError("as requested")


async def test_an_error_in_closing_is_logged_and_the_other_dependencies_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App("headwater://memory")

    @app.consumer(orders, group="g")
    async def bill(
        order: Order,
        pool: Annotated[str, Use(open_pool)],
        bad: Annotated[str, Use(closes_badly)],
        cache: Annotated[str, Use(open_cache)],
    ) -> None: ...

    async with app.test():
        pass
    assert calls == ["open pool", "open cache", "close cache", "bad", "close pool"]
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert record.getMessage() == "closing closes_badly failed"


async def stuck_at_the_end() -> AsyncIterator[str]:
    yield ""
    calls.append("stuck")
    await asyncio.Event().wait()


async def test_a_dependency_that_does_not_close_does_not_delay_the_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.worker.declare.lifespan.CLOSING_SECONDS", 0.01)
    app = App("headwater://memory")

    @app.consumer(orders, group="g")
    async def bill(
        order: Order,
        pool: Annotated[str, Use(open_pool)],
        bad: Annotated[str, Use(stuck_at_the_end)],
    ) -> None: ...

    async with run(app):
        await eventually(lambda: "open pool" in calls)
        await asyncio.sleep(0.01)
    assert calls == ["open pool", "stuck", "close pool"]
    assert "closing stuck_at_the_end was cancelled" in caplog.text


async def test_a_process_dependency_stays_open_when_a_worker_of_the_process_crashes() -> None:
    # App.test() crashes one worker. The process and its dependencies continue.
    app = App("headwater://memory")

    @app.consumer(orders, group="g")
    async def bill(order: Order, pool: Annotated[str, Use(open_pool)]) -> None:
        if order.id == 1:
            raise Again("10s")

    async with app.test() as t:
        await t.send(orders, Order(1))
        t.crash(bill)
        await t.send(orders, Order(2))
        assert calls == ["open pool"]
