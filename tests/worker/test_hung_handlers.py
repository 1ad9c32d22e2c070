"""A consumer of which every handler hangs is named, with the place where the oldest one hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from headwater.groups.protocol.operation import run as run_operation
from headwater.groups.reports.hung import read_said, write_hung, write_transfers
from headwater.groups.reports.pending import groups
from headwater.operations.causes import CauseName, causes
from headwater.operations.observation import observe
from headwater.operations.refusals import Refusals
from headwater.worker import App, Batch
from headwater.worker.declare.statistics import ConsumerProgress, ConsumerStatistics, Counters
from headwater.worker.observe.health import judged
from headwater.worker.observe.supervisor_pipe import ReceivedReports, Reports
from tests.worker.apps import Order, Store, eventually, orders, working
from tests.worker.core import Core


def hung(app: App) -> str:
    (consumer,) = app.statistics().consumers
    assert consumer.progress is not None
    return consumer.progress.hung


def declared(app: App, go_on: asyncio.Event, **options: Any) -> Callable[..., Any]:
    @app.consumer(orders, group="g", concurrency=2, **options)
    async def bill(order: Order) -> None:
        if order.id < 2:
            await go_on.wait()

    return bill


async def test_a_consumer_hangs_after_a_minute_without_an_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, go_on = App("headwater://memory"), asyncio.Event()
    declared(app, go_on)
    async with app.test() as t:
        # Given a free slot, then nothing hangs
        await t.send(orders, Order(0))
        await t.advance("10m")
        assert hung(app) == ""
        # When every slot is busy, then it hangs after a minute
        await t.send(orders, Order(1))
        await t.advance("59s")
        assert hung(app) == ""
        await t.advance("3s")
        assert hung(app).startswith(
            "every slot is busy and no handler has ended for 62 s; the oldest, declared.<locals>.bill ("
        )
        # And the log and the sentence name the place
        assert "test_hung_handlers.py" in hung(app)
        assert caplog.text.count("hung: every slot is busy") == 1
        assert "await go_on.wait()" in caplog.text
        # And `explain` knows it, until it works again
        assert "bill" in next(iter(run_operation(t.look, read_said("orders", "g"))[0].values()))
        go_on.set()
        await t.settle()
        assert hung(app) == ""
        await t.advance("3s")
        assert run_operation(t.look, read_said("orders", "g")) == ({}, {})


async def test_the_declared_timeout_is_the_measure() -> None:
    # Given handlers that ignore their cancellation
    app, go_on = App("headwater://memory"), asyncio.Event()

    @app.consumer(orders, group="g", concurrency=1, timeout="5m")
    async def bill(order: Order) -> None:
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()

    async with app.test() as t:
        await t.send(orders, Order(0))
        await t.advance("5m")
        assert hung(app) == ""
        await t.advance("2s")
        assert hung(app)
        go_on.set()


async def test_a_batch_hangs() -> None:
    app, go_on = App("headwater://memory"), asyncio.Event()

    @app.batch(orders, group="g", size=2, linger="10ms")
    async def load(rows: Batch[Order]) -> None:
        await go_on.wait()

    async with app.test() as t:
        await t.send(orders, Order(0), Order(1))
        await t.advance("2m")
        assert ".load (" in hung(app)
        go_on.set()


async def test_the_place_of_a_handler_in_a_thread(store: Store) -> None:
    app, go_on = store.app(), threading.Event()

    def wait_here() -> None:
        go_on.wait(30)

    @app.consumer(orders, group="g", concurrency=1)
    def bill(order: Order) -> None:
        wait_here()

    async with working(app) as running:
        await orders.send(Order(0))
        (loop,) = running.loops.values()
        await eventually(lambda: loop.pool.running)
        (owned,) = loop.pool.running
        await eventually(lambda: "wait_here" in [one.name for one in loop.executor.stack(owned)])
        go_on.set()


def test_health_names_it() -> None:
    received = ReceivedReports()
    sentence = "every slot is busy"
    progress = ConsumerProgress(0, 0, 0, 90, 2, 2, hung=sentence + " x" * 2_000)
    Reports(received.writer).progress(
        0, ConsumerStatistics("bill", "orders", "g", Counters(), progress, [])
    )
    received.close_writer()
    received.read()
    (problem,) = judged(0, 17, received, now=received.heard_at).problems
    assert problem.startswith("hung: orders/g: every slot is busy")
    received.close()


def test_explain_names_it_instead_of_slow(core: Core) -> None:
    core.client.xadd("s", {"v": "1"})
    core.do(write_hung(core.member, "every slot is busy"))
    (group,) = core.do(groups("s"))
    (cause,) = [
        one
        for one in causes(core.do(observe(group, Refusals([], []))))
        if one.name is CauseName.HUNG
    ]
    assert cause.statement.startswith("consumer one: every slot is busy. Find out")


def test_explain_says_that_a_group_with_a_large_transfer_is_not_stuck(core: Core) -> None:
    core.client.xadd("s", {"v": "1"})
    core.do(write_transfers(core.member, "a large reply of the store is under way, 3.2 MB so far"))
    (group,) = core.do(groups("s"))
    now = core.do(observe(group, Refusals([], [])))
    (cause,) = [one for one in causes(now) if one.name is CauseName.TRANSFER]
    assert cause.statement.startswith("consumer one: a large reply of the store is under way, 3.2")
    assert cause.normal
    core.do(write_transfers(core.member, ""))
    assert core.do(observe(group, Refusals([], []))).transfers == {}
