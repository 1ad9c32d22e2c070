"""The log of a stop says what it waits for and how to stop at once; handlers that run too long are
reported."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from headwater.testing.server import server_process
from headwater.worker import App, Stream
from tests.worker import shop
from tests.worker.apps import Order, Store, eventually, orders, worker
from tests.worker.processes import one_worker, supervised


class Stoppable(Protocol):
    @property
    def url(self) -> str: ...

    def stop(self) -> object: ...


@pytest.fixture(params=["headwater", "redis-8.2"])
def stoppable(request: pytest.FixtureRequest) -> Iterator[Stoppable]:
    """A store that the test can stop."""
    if request.param == "headwater":
        with server_process("--appendonly", "no", "--save", "") as server:
            yield server
    else:
        peer: Any = request.getfixturevalue("peer")
        found = peer(request.param)
        found.stop = found.kill
        yield found


# --- stopping -------------------------------------------------------------------------------------


async def test_a_stop_without_entries_in_flight_does_not_wait_for_an_unreachable_store(
    stoppable: Stoppable, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a worker that has handled everything, and a store that stops
    caplog.set_level(logging.INFO, "headwater.worker")
    app = App(stoppable.url, name="idle")
    handled = []

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        handled.append(order.id)

    async with app:
        await orders.send(Order(17))
        running = worker(app)
        running.start()
        (loop,) = running.loops.values()
        await eventually(lambda: handled and not loop.in_flight.owned)
        stoppable.stop()

        # When it is stopped with a grace of an hour, then it stops at once
        await asyncio.wait_for(running.stop(3600), 60)
    assert "g of orders stopped; the store is unreachable" in caplog.text


@pytest.mark.slow
async def test_a_second_signal_ends_the_wait_for_an_unreachable_store(
    stoppable: Stoppable, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a worker with a settlement that the store has not confirmed
    app = App(stoppable.url, name="busy")
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        begun.set()
        await go_on.wait()

    async with app:
        await orders.send(Order(17))
        running = worker(app)
        running.start()
        await begun.wait()
        stoppable.stop()
        go_on.set()

        # When it is stopped with a grace of an hour, then it logs what it waits for
        running.ask_to_stop()
        stopping = asyncio.create_task(running.stop(3600))
        await eventually(lambda: "for the store to accept the last settlements (1)" in caplog.text)
        assert "SIGTERM or Ctrl-C again stops now" in caplog.text

        # And when it is asked again, then it stops
        running.ask_to_stop()
        await asyncio.wait_for(stopping, 60)
    assert "still owns entries (1)" in caplog.text


async def test_a_stop_logs_the_running_handlers_and_how_to_stop_at_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app = store.app()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        begun.set()
        await go_on.wait()

    async with app:
        sent = await orders.send(Order(17))
        running = worker(app)
        running.start()
        await begun.wait()
        stopping = asyncio.create_task(running.stop(40))
        await eventually(lambda: "stopping: waiting up to 40 s for 1 running" in caplog.text)
        go_on.set()
        await stopping
    assert f"({sent} of orders for 0." in caplog.text
    assert "SIGTERM or Ctrl-C again stops now" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_headwater_work_logs_the_running_handlers(
    store: Store, number: signal.Signals
) -> None:
    with supervised(store.url, "--workers", "1", SHOP_SLOW_SECONDS="60") as parent:
        await store.look.xadd("orders", dict(shop.orders.codec.encode(shop.Order(1, do="slow"))))
        await eventually(lambda: "bill is slow" in parent.log())
        parent.signal(number)
        await eventually(lambda: "for 1 running bill" in parent.log())
        parent.signal(number)
        assert parent.wait() == 0
        output = parent.log()
    assert "stopping 1 worker" in output
    assert "SIGTERM or Ctrl-C again stops now" in output


@pytest.mark.slow
async def test_a_worker_without_a_store_ends_at_the_first_signal(stoppable: Stoppable) -> None:
    with one_worker(stoppable.url) as process:
        await eventually(lambda: "reads orders as" in process.log())
        stoppable.stop()
        await eventually(lambda: "trying again" in process.log())
        process.signal(signal.SIGTERM)
        assert process.wait(15) == 0


@pytest.mark.slow
async def test_a_handler_that_ignores_its_cancellation_does_not_keep_its_process_alive(
    store: Store,
) -> None:
    with one_worker(store.url) as process:
        await store.look.xadd(
            "orders", dict(shop.orders.codec.encode(shop.Order(1, do="stubborn")))
        )
        await eventually(lambda: "ignores cancellation" in process.log())
        process.signal(signal.SIGTERM)
        await eventually(lambda: "for 1 running bill" in process.log())
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert "ends although 1 handler ignores its cancellation" in process.log()
    ((_id, owner, _idle, count),) = await store.pending()
    assert (owner in {"", "hw.parked"}, count) == (True, 0)
    assert await store.consumers() == []


# --- running too long -----------------------------------------------------------------------------


async def test_a_handler_older_than_its_timeout_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a handler that ignores its cancellation
    app = App("headwater://memory")
    stream = Stream("orders", Order)
    go_on = asyncio.Event()

    @app.consumer(stream, group="g", timeout="30s")
    async def stubborn(order: Order) -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                pass

    async with app.test() as t:
        (sent,) = await t.send(stream, Order(17))
        await t.advance("30s")
        assert "has been handling" not in caplog.text

        # When it runs longer than its timeout, then it is reported
        await t.advance("1s")
        words = (
            f"stubborn has been handling {sent} of orders (delivery 1) for 31.0 s, longer than its"
        )
        assert words in caplog.text

        # And again only when its age has doubled
        await t.advance("30s")
        assert caplog.text.count("has been handling") == 1
        await t.advance("1s")
        assert caplog.text.count("has been handling") == 2
        go_on.set()
        await t.settle()


async def test_a_handler_that_takes_ten_times_as_long_as_usual_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a handler that took two seconds, ten times
    app = App("headwater://memory")
    stream = Stream("orders", Order)
    waits: list[asyncio.Event] = []

    @app.consumer(stream, group="g")
    async def bill(order: Order) -> None:
        waits.append(asyncio.Event())
        await waits[-1].wait()

    async with app.test() as t:
        for number in range(10):
            await t.send(stream, Order(number))
            await t.advance("2s")
            waits[-1].set()
            await t.settle()

        # When it takes longer than twenty, then it is reported
        await t.send(stream, Order(10))
        await t.advance("20s")
        assert "has been handling" not in caplog.text
        await t.advance("1s")
        assert "for 21.0 s, more than 10 times the usual 2 s" in caplog.text
        waits[-1].set()
        await t.settle()


async def test_a_handler_that_is_usually_quick_is_not_reported_within_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App("headwater://memory")
    stream = Stream("orders", Order)
    go_on = asyncio.Event()

    @app.consumer(stream, group="g")
    async def bill(order: Order) -> None:
        if order.id == 99:
            await go_on.wait()

    async with app.test() as t:
        await t.send(stream, *(Order(number) for number in range(20)), Order(99))
        await t.advance("1s")
        assert "has been handling" not in caplog.text
        await t.advance("1s")
        assert "for 2.0 s, more than 10 times the usual 0 s" in caplog.text
        go_on.set()
        await t.settle()
