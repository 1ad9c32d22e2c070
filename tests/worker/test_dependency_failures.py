"""Dependencies that fail, hang or do not close: what becomes of the delivery, and of the worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from headwater.worker import Again, App, Dead, Use
from headwater.worker.lifespan import StartFailed
from tests.worker.apps import Invoice, Order, Store, eventually, invoices, orders
from tests.worker.runs import run

said: list[str] = []
"""What the providers of this module did."""


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    said.clear()


async def open_pool() -> AsyncIterator[str]:
    said.append("open pool")
    yield "pool"
    said.append("close pool")


async def open_cache(pool: Annotated[str, Use(open_pool)]) -> AsyncIterator[str]:
    said.append("open cache")
    yield f"cache on {pool}"
    said.append("close cache")


# --- failures -------------------------------------------------------------------------------------


failing: dict[str, BaseException] = {}
"""What ``fragile`` raises when it opens and when it closes."""


async def fragile() -> AsyncIterator[str]:
    if "open" in failing:
        raise failing["open"]
    try:
        yield "fragile"
    except BaseException as error:
        said.append(f"saw {type(error).__name__}")
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
async def test_a_dependency_that_fails_fails_the_delivery(
    when: str, error: BaseException, fail: dict[str, BaseException]
) -> None:
    # Given a dependency that fails to open, or to commit at its closing
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
    assert said == ["saw Dead"]


async def test_the_handlers_own_error_counts_more_than_that_of_closing(
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


async def test_a_result_that_cannot_be_published_is_an_error_to_a_dependency(
    fail: dict[str, BaseException],
) -> None:
    # Given a handler that returns what its stream does not hold, and a transaction
    app = App("headwater://memory")

    @app.consumer(orders, group="g", into=invoices, max_deliveries=1)
    async def bill(order: Order, what: Fragile) -> Any:
        return "no invoice"

    # Then the transaction is not committed
    async with app.test() as t:
        await t.send(orders, Order(1))
        assert len(t.dead(orders)) == 1
    assert said == ["saw TypeError"]


async def hanging() -> AsyncIterator[str]:
    try:
        said.append("hangs")
        await asyncio.Event().wait()
        yield ""
    finally:
        said.append("let go")


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
    # And what was open by then is closed: its generator got the cancellation.
    assert said == ["open pool", "hangs", "let go"]


async def test_a_stop_closes_what_interrupted_handlers_hold(store: Store) -> None:
    app = store.app(grace="0s")

    @app.consumer(orders, group="g")
    async def bill(order: Order, pool: Annotated[str, Use(open_pool)], what: Fragile) -> None:
        said.append("begun")
        await asyncio.Event().wait()

    async with run(app):
        await app.send(orders, Order(1))
        await eventually(lambda: "begun" in said)
    assert said == ["open pool", "begun", "saw CancelledError", "close pool"]


# --- the process's own ----------------------------------------------------------------------------


async def broken() -> str:
    raise ConnectionError("no database")


async def leaving() -> str:
    raise SystemExit(0)


async def confused() -> str:
    raise asyncio.CancelledError


@pytest.mark.parametrize("provider", [broken, leaving, confused])
async def test_a_worker_whose_dependency_cannot_be_opened_reads_nothing_and_says_which(
    provider: Any,
) -> None:
    # Given two dependencies, of which the second one fails
    app = App("headwater://memory")

    async def first(order: Order, pool: Annotated[str, Use(open_pool)]) -> None: ...

    async def handle(order: Order, what: Any) -> None: ...

    handle.__annotations__["what"] = Annotated[str, Use(provider)]
    app.consumer(orders, group="f")(first)
    app.consumer(orders, group="g")(handle)

    # When the app runs, then it ends with an error that names it, and the first one is closed
    with pytest.raises(StartFailed, match=f"^{provider.__name__} failed at the start: "):
        await app.run()
    with pytest.raises(StartFailed):
        async with app.test():
            pass
    assert said == ["open pool", "close pool"] * 2


async def test_a_stop_is_heard_while_a_dependency_is_opened(store: Store) -> None:
    app = store.app()

    @app.consumer(orders, group="g")
    async def bill(order: Order, what: Annotated[str, Use(hanging)]) -> None: ...

    async with run(app):
        await eventually(lambda: said == ["hangs"])
    assert said == ["hangs", "let go"]
    assert not await store.look.exists("orders")


async def test_a_run_that_is_cancelled_while_a_dependency_is_opened_closes_it(
    store: Store,
) -> None:
    app = store.app()

    @app.consumer(orders, group="g")
    async def bill(order: Order, what: Annotated[str, Use(hanging)]) -> None: ...

    task = asyncio.create_task(app.run())
    await eventually(lambda: said == ["hangs"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert said == ["hangs", "let go"]


async def closes_badly() -> AsyncIterator[str]:
    yield ""
    said.append("bad")
    raise ValueError("as it was told")


async def test_an_error_in_closing_is_logged_and_the_others_are_closed(
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
    assert said == ["open pool", "open cache", "close cache", "bad", "close pool"]
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert record.getMessage() == "closing closes_badly failed"


async def stuck_at_the_end() -> AsyncIterator[str]:
    yield ""
    said.append("stuck")
    await asyncio.Event().wait()


async def test_a_dependency_that_does_not_close_holds_up_no_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.worker.lifespan.CLOSING_SECONDS", 0.01)
    app = App("headwater://memory")

    @app.consumer(orders, group="g")
    async def bill(
        order: Order,
        pool: Annotated[str, Use(open_pool)],
        bad: Annotated[str, Use(stuck_at_the_end)],
    ) -> None: ...

    async with run(app):
        await eventually(lambda: "open pool" in said)
        await asyncio.sleep(0.01)
    assert said == ["open pool", "stuck", "close pool"]
    assert "closing stuck_at_the_end was cancelled" in caplog.text


async def test_a_dependency_lives_through_the_crash_of_another_worker() -> None:
    # App.test() crashes one worker; the process with its dependencies lives.
    app = App("headwater://memory")

    @app.consumer(orders, group="g")
    async def bill(order: Order, pool: Annotated[str, Use(open_pool)]) -> None:
        if order.id == 1:
            raise Again("10s")

    async with app.test() as t:
        await t.send(orders, Order(1))
        t.crash(bill)
        await t.send(orders, Order(2))
        assert said == ["open pool"]
