"""What an app does at the start and the stop of its worker: when, in which order, and what if it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest

from headwater.errors import DeclarationError
from headwater.worker import App, Use
from headwater.worker.lifespan import StartFailed
from headwater.worker.loop import TaskEnded
from tests.worker.apps import Order, Store, eventually, orders
from tests.worker.runs import run

said: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    said.clear()


async def open_db() -> AsyncIterator[str]:
    said.append("open")
    yield "db"
    said.append("close")


Db = Annotated[str, Use(open_db)]


def handled(app: App) -> None:
    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        said.append(f"handle {order.id}")


async def test_a_start_that_takes_long_is_named_in_the_log(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.worker.lifespan.SLOW_SECONDS", 0.001)
    app = store.app()
    handled(app)

    @app.on_start
    async def warm_up() -> None:
        await eventually(lambda: "warm_up has taken" in caplog.text)

    async with run(app):
        await eventually(store.consumers_if_any)
    (line,) = [one for one in caplog.messages if "has taken" in one]
    assert line.endswith("the worker does not read before it is done")


async def test_hooks_run_around_the_work_in_their_order(store: Store) -> None:
    # Given hooks, async and not, one of which needs a dependency
    app = store.app()
    handled(app)

    @app.on_start
    async def warm_up(db: Db) -> None:
        await asyncio.sleep(0)
        said.append(f"warm up {db}")

    @app.on_start
    def say_hello() -> None:
        said.append("hello")

    @app.on_stop
    def say_bye() -> None:
        said.append("bye")

    @app.on_stop
    async def cool_down(db: Db) -> None:
        said.append(f"cool down {db}")

    # When a worker starts, handles a message that waits, and stops
    async with app:
        await app.send(orders, Order(1))
    assert said == []  # publishing starts no worker
    async with run(app):
        await eventually(store.settled)

    # Then each ran once, in order, the last declared first at the stop
    assert said == [
        *("open", "warm up db", "hello"),
        "handle 1",
        *("cool down db", "bye", "close"),
    ]


async def test_hooks_may_publish() -> None:
    app = App("headwater://memory")
    handled(app)

    @app.on_start
    async def begin() -> None:
        await app.send(orders, Order(1))

    @app.on_stop
    async def end() -> None:
        said.append(await app.send(orders, Order(2)))

    async with app.test():
        assert said == ["handle 1"]
    assert len(said) == 2


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(0), KeyError()])
async def test_a_start_that_fails_ends_the_worker_before_it_reads(
    error: BaseException, store: Store
) -> None:
    app = store.app()
    handled(app)

    @app.on_start
    async def warm_up(db: Db) -> None:
        raise error

    @app.on_start
    def never() -> None:
        said.append("never")

    @app.on_stop
    def never_too() -> None:
        said.append("never")

    with pytest.raises(StartFailed, match=r"on_start function .*warm_up failed at the start: "):
        await app.run()
    assert said == ["open", "close"]
    assert not await store.look.exists("orders")


async def test_a_stop_that_fails_is_logged_and_the_others_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App("headwater://memory")
    handled(app)

    @app.on_stop
    def last() -> None:
        said.append("last")

    @app.on_stop
    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    @app.on_stop
    async def fails(db: Db) -> None:
        raise SystemExit(3)

    async with app.test():
        pass
    assert said == ["open", "last", "close"]
    assert "fails failed" in caplog.text
    assert "cancels_itself was cancelled" in caplog.text


async def test_hooks_run_also_when_a_consumer_ends_with_an_error() -> None:
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

        said.append(str(asyncio.ensure_future(end_the_settler()) is not None))

    @app.on_stop
    def bye() -> None:
        said.append("bye")

    with pytest.raises(Exception, match=r"settler of .*bill ended without having been stopped"):
        await app.run()
    assert said[-1] == "bye"


async def test_a_worker_whose_dependencies_were_closed_under_it_ends_with_an_error(
    store: Store,
) -> None:
    # Given a handler that cancels the task that keeps the dependencies open
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
    assert said == ["open", "close"]


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


async def test_a_hook_that_comes_too_late_is_refused() -> None:
    app = App("headwater://memory")
    handled(app)
    async with app.test():
        with pytest.raises(DeclarationError, match="on_stop comes too late"):
            app.on_stop(lambda: None)
