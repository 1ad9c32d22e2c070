"""A test that lets a day pass goes from one due time to the next, and everything happens at its time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.groups.settling.scheduling import GROUP
from headwater.messages.keys import later_key
from headwater.testing.clock import ManualClock
from headwater.worker import App, Backoff, Batch, Delivery
from headwater.worker.testing import AppTest
from tests.worker.apps import Order, orders

HOUR = 3600.0

MOST_ROUNDS = 300
"""How many times may be reached in a day: those of the first minute, and then one in an hour for each part."""


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which a test stopped while it advanced."""
    found: list[float] = []
    settle = AppTest.settle

    async def counted(self: AppTest) -> None:
        found.append(self.clock.monotonic())
        await settle(self)

    monkeypatch.setattr(AppTest, "settle", counted)
    return found


@pytest.mark.parametrize("kind", ["plain", "batch"])
async def test_an_idle_day_is_advanced_in_few_steps(rounds: list[float], kind: str) -> None:
    app = App("headwater://memory")
    if kind == "plain":
        app.consumer(orders, group="g")(lambda order: None)
    else:

        @app.batch(orders, group="g")
        async def load(rows: Batch[Order]) -> None: ...

    async with app.test() as t:
        await t.send(orders, Order(1))
        await t.advance("24h")
        assert len(rounds) < MOST_ROUNDS
        assert app.statistics().consumers[0].late == []


async def test_retries_and_scheduled_messages_of_a_day_happen_at_their_times(
    rounds: list[float],
) -> None:
    app = App("headwater://memory")
    handled: list[tuple[int, float]] = []

    @app.consumer(orders, group="g", retry=Backoff("7h", factor=1, ceiling="7h", jitter=0))
    async def bill(order: Order, delivery: Delivery) -> None:
        handled.append((order.id, t.clock.monotonic() / HOUR))
        if order.id == 1 and delivery.count < 3:
            raise ValueError("not yet")

    async with app.test() as t:
        await t.send(orders, Order(1))
        await orders.send(Order(2), after="10h")
        await t.advance("24h")
    assert handled == [(1, 0), (1, 7), (2, 10), (1, 14)]
    assert len(rounds) < MOST_ROUNDS


async def test_a_running_handler_keeps_its_entry_for_a_day() -> None:
    app, go_on = App("headwater://memory"), asyncio.Event()

    @app.consumer(orders, group="g", claim_after="10m")
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with app.test() as t:
        await t.send(orders, Order(1))
        await t.advance("24h")
        assert t.deliveries(bill) == [1]
        assert [*t.pending(bill).values()] == [1]
        go_on.set()
        await t.settle()
        assert t.pending(bill) == {}


async def test_a_crashed_process_is_replaced_after_claim_after_in_a_long_advance() -> None:
    app = App("headwater://memory")
    began: list[float] = []

    @app.consumer(orders, group="g", claim_after="2h")
    async def bill(order: Order) -> Any:
        began.append(t.clock.monotonic() / HOUR)
        if len(began) == 1:
            await asyncio.Event().wait()

    async with app.test() as t:
        await t.send(orders, Order(1))
        t.crash(bill)
        await t.advance("24h")
    assert began == [0, 2]


def test_a_leap_runs_overdue_upkeep_once_and_no_event_early() -> None:
    clock, ran = ManualClock(), list[str]()

    def again() -> None:
        ran.append(f"upkeep at {clock.monotonic():g}")
        clock.call_upkeep(1, again)

    clock.call_upkeep(1, again)
    clock.call_later(60, lambda: ran.append("event"))
    assert (clock.until_next(), clock.until_event()) == (1, 60)
    clock.leap(59)
    assert ran == ["upkeep at 59"]
    clock.advance(1)
    assert sorted(ran) == ["event", "upkeep at 59", "upkeep at 60"]


async def test_consumers_that_crashed_workers_left_are_removed_after_a_day() -> None:
    # Given a worker, a scheduled message, and consumers that others have left in both groups
    app = App("headwater://memory")
    app.consumer(orders, group="g")(lambda order: None)
    async with app.test() as t:
        await orders.send(Order(1), after="90d")
        await t.advance("10s")
        groups = (("orders", "g"), (later_key("orders"), GROUP))
        for stream, group in groups:
            t.look.xgroup_createconsumer(stream, group, "left-1")

        def left() -> list[bool]:
            names = [
                [one["name"] for one in t.look.xinfo_consumers(stream, group)]
                for stream, group in groups
            ]
            assert all({*found} - {b"left-1"} for found in names), "the worker's own consumer stays"
            return [b"left-1" in found for found in names]

        # When less than a day has passed, then they are there; an hour after a day at the latest they are gone
        await t.advance("23h")
        assert left() == [True, True]
        await t.advance("2h")
        assert left() == [False, False]
