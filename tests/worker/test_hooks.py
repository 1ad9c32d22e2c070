"""Functions that an app runs at the start and stop of its worker: when, in which order, and errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest

from headwater.errors import DeclarationError
from headwater.worker import App, Use
from headwater.worker.declare.lifespan import StartFailed
from headwater.worker.loop import TaskEnded
from tests.worker.apps import Order, Store, eventually, orders
from tests.worker.runs import run

calls: list[str] = []


@pytest.fixture(autouse=True)
def _clear_calls() -> None:
    calls.clear()


async def open_db() -> AsyncIterator[str]:
    calls.append("open")
    yield "db"
    calls.append("close")


Db = Annotated[str, Use(open_db)]


def handled(app: App) -> None:
    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        calls.append(f"handle {order.id}")


async def test_a_slow_start_function_is_logged(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.worker.declare.lifespan.SLOW_SECONDS", 0.001)
    app = store.app()
    handled(app)

    @app.on_start
    async def warm_up() -> None:
        await eventually(lambda: "warm_up has taken" in caplog.text)

    async with run(app):
        await eventually(store.consumers_if_any)
    (line,) = [one for one in caplog.messages if "has taken" in one]
    assert line.endswith("the worker does not read before it is done")


async def test_start_functions_run_before_the_work_and_stop_functions_after_it(
    store: Store,
) -> None:
    # Given hooks, async and not, one of which has a dependency
    app = store.app()
    handled(app)

    @app.on_start
    async def warm_up(db: Db) -> None:
        await asyncio.sleep(0)
        calls.append(f"warm up {db}")

    @app.on_start
    def say_hello() -> None:
        calls.append("hello")

    @app.on_stop
    def say_bye() -> None:
        calls.append("bye")

    @app.on_stop
    async def cool_down(db: Db) -> None:
        calls.append(f"cool down {db}")

    # When a worker starts, handles a message that waits, and stops
    async with app:
        await app.send(orders, Order(1))
    assert calls == []  # publishing does not start a worker
    async with run(app):
        await eventually(store.settled)

    # Then each ran once, in order; at the stop, the last declared runs first
    assert calls == [
        *("open", "warm up db", "hello"),
        "handle 1",
        *("cool down db", "bye", "close"),
    ]


async def test_hooks_can_publish() -> None:
    app = App("headwater://memory")
    handled(app)

    @app.on_start
    async def begin() -> None:
        await app.send(orders, Order(1))

    @app.on_stop
    async def end() -> None:
        calls.append(await app.send(orders, Order(2)))

    async with app.test():
        assert calls == ["handle 1"]
    assert len(calls) == 2


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(0), KeyError()])
async def test_a_failing_start_function_ends_the_worker_before_it_reads(
    error: BaseException, store: Store
) -> None:
    app = store.app()
    handled(app)

    @app.on_start
    async def warm_up(db: Db) -> None:
        raise error

    @app.on_start
    def never() -> None:
        calls.append("never")

    @app.on_stop
    def never_too() -> None:
        calls.append("never")

    with pytest.raises(StartFailed, match=r"on_start function .*warm_up failed at the start: "):
        await app.run()
    assert calls == ["open", "close"]
    assert not await store.look.exists("orders")


async def test_a_failing_stop_function_is_logged_and_the_others_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App("headwater://memory")
    handled(app)

    @app.on_stop
    def last() -> None:
        calls.append("last")

    @app.on_stop
    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    @app.on_stop
    async def fails(db: Db) -> None:
        raise SystemExit(3)

    async with app.test():
        pass
    assert calls == ["open", "last", "close"]
    assert "fails failed" in caplog.text
    assert "cancels_itself was cancelled" in caplog.text


async def test_stop_functions_run_when_a_consumer_ends_with_an_error() -> None:
    app = App("headwater://memory")
    handled(app)

    @app.on_start
    async def break_it() -> None:
        async def end_the_settler() -> None:
            while True:
                for task in asyncio.all_tasks():
                    if task.get_name().endswith("settler"):
                        task.cancel()
                        return
                await asyncio.sleep(0)

        calls.append(str(asyncio.ensure_future(end_the_settler()) is not None))

    @app.on_stop
    def bye() -> None:
        calls.append("bye")

    with pytest.raises(Exception, match=r"settler of .*bill ended without having been stopped"):
        await app.run()
    assert calls[-1] == "bye"


async def test_a_worker_ends_with_an_error_if_its_dependencies_were_closed(
    store: Store,
) -> None:
    # Given a handler that cancels the task that holds the dependencies open
    app = store.app()

    @app.consumer(orders, group="g")
    async def bill(order: Order, db: Db) -> None:
        for task in asyncio.all_tasks():
            if task.get_name() == "headwater lifespan":
                task.cancel()

    async with app:
        await app.send(orders, Order(1))
    with pytest.raises(TaskEnded, match="headwater lifespan ended without having been stopped"):
        await app.run()
    assert calls == ["open", "close"]


def test_a_hook_that_cannot_be_called_is_refused() -> None:
    app = App("headwater://memory")

    def too_much(order: Any) -> None: ...

    def of_a_delivery(db: Any) -> None: ...

    of_a_delivery.__annotations__["db"] = Annotated[str, Use(open_db, scope="delivery")]
    for function, complaint in (
        (too_much, "on_start function .*there is no value for parameter 'order'"),
        (of_a_delivery, "needs open_db, which has the scope of a delivery"),
    ):
        with pytest.raises(DeclarationError, match=complaint):
            app.on_start(function)


async def test_declaring_a_hook_after_the_start_is_refused() -> None:
    app = App("headwater://memory")
    handled(app)
    async with app.test():
        with pytest.raises(DeclarationError, match="on_stop comes too late"):
            app.on_stop(lambda: None)
