"""What reading and asking ahead for a `Limit` may not cost: tokens, turns, waiting in a busy process, or a spin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from headwater.worker import App, Delivery, Limit
from headwater.worker.running import Running, Surroundings
from headwater.worker.store.clocks import sleep
from headwater.worker.store.connections import Connections
from headwater.worker.testing import AppTest
from tests.worker.test_limits import Call, calls, memory, most_in


class Calls:
    """An app under test, when its handlers began and in which consumer, and how long they run by the message's id."""

    def __init__(self, **options: Any) -> None:
        self.app: App = memory()
        self.t: AppTest
        self.seconds: dict[int, float] = {}
        self.blocks: dict[int, float] = {}
        """The same for handlers that block the event loop."""
        self.began: dict[int, float] = {}
        self.by: dict[int, str] = {}

        @self.app.consumer(calls, group="g", **options)
        async def handle(call: Call, delivery: Delivery) -> None:
            self.began[call.id] = round(self.t.clock.monotonic(), 3)
            self.by[call.id] = delivery.consumer
            self.t.clock._passed_us += round(1e6 * self.blocks.get(call.id, 0.0))
            if call.id in self.seconds:
                await sleep(self.t.clock, self.seconds[call.id])

        self.handle = handle

    async def send(self, *ids: int, customer: str = "") -> None:
        await self.t.send(calls, *(Call(n, customer) for n in ids))

    @asynccontextmanager
    async def another_process(self) -> AsyncIterator[Running]:
        """Another worker of the app."""
        connections = Connections("headwater://memory", node=self.t.node)
        around = Surroundings(connections, self.t.clock, Random(1))
        other = Running(self.app.consumers, around=around)
        await other.open()
        other.start()
        await self.t.settle()
        yield other
        other.ask_to_stop()
        other.ask_to_stop()
        await self.t._drive(other.stop(0))


async def test_a_handler_that_takes_long_costs_other_keys_no_token() -> None:
    # Given a limit of one start a minute for each customer, and quick handlers
    one = Calls(concurrency=1, prefetch=32, limit=Limit(1, per="60s", by="customer"))
    one.seconds[100] = 0.5
    async with one.app.test() as one.t:
        for number in range(20):
            await one.send(number, customer=f"first {number}")
        # When one of them takes half a second while other customers wait for their first start
        await one.send(100, customer="long")
        for number in range(200, 220):
            await one.send(number, customer=f"second {number}")
        await one.t.advance("1s")
    # Then these start after it
    assert {one.began[number] for number in range(200, 220)} == {0.5}


async def test_a_process_that_was_held_up_does_not_start_what_had_tokens_meanwhile() -> None:
    # Given a handler that blocks the event loop for a quarter of a second
    one = Calls(concurrency=1, prefetch=40, limit=Limit(200, per="1s", burst=1))
    one.blocks[100] = 0.25
    async with one.app.test() as one.t:
        await one.send(*range(500))
        await one.t.advance("5s")
    # Then one entry for each slot and each token starts afterwards
    assert len(one.began) == 500
    assert most_in([*one.began.values()], 0.001) <= 2


@pytest.mark.parametrize("long", [0.5, 0.9, 60.0])
async def test_what_was_read_ahead_does_not_wait_for_slots_that_became_slow(long: float) -> None:
    # Given a process with one slot, whose handlers were quick, and another one that is idle
    one = Calls(concurrency=1, limit=Limit(1000, per="1s", burst=100))
    one.seconds = {100: 0.15, 101: long, 102: long, 103: long}
    async with one.app.test() as one.t:
        await one.send(*range(20))
        await one.t.advance("1s")
        # When it has four messages that take long
        await one.send(100, 101, 102, 103)
        async with one.another_process():
            await one.t.advance("100s")
    # Then the other process has the third of them within a second
    waited = one.began[102] - one.began[100]
    assert waited <= 1.0
    assert one.by[102] != one.by[101] or waited < 0.9


@pytest.mark.parametrize("ends", ["stops", "dies"])
async def test_the_first_in_line_for_a_place_does_not_block_it_when_its_process_ends(
    ends: str,
) -> None:
    # Given a process that runs one entry and keeps the first in line, and one that is full of entries behind that
    one = Calls(concurrency=2, limit=Limit(concurrent=1))
    one.seconds = dict.fromkeys(range(4), 0.2)
    async with one.app.test() as one.t:
        await one.send(0, 1)
        async with one.another_process():
            await one.send(2, 3)
            # When the first process ends
            (loop,) = one.t._loops()
            stopping: list[asyncio.Future[None]] = []
            if ends == "dies":
                loop.abandon()
            else:
                stopping.append(asyncio.ensure_future(loop.stop(grace=5, at_once=asyncio.Event())))
            await one.t.advance("2m")
            # Then all entries are handled
            assert one.t.pending(one.handle) == {}
            await asyncio.gather(*stopping)
    assert sorted(one.began) == [0, 1, 2, 3]


async def test_entries_of_one_key_that_wait_for_a_rate_ask_only_when_it_has_a_token() -> None:
    # Given a rate for all, and one start at a time for each customer
    limits = [Limit(1, per="60s"), Limit(concurrent=1, by="customer")]
    one = Calls(concurrency=2, limit=limits)
    async with one.app.test() as one.t:
        # When several entries of one customer wait for the rate
        await one.send(*range(6), customer="a")
        await one.t.advance("50s")
        (loop,) = one.t._loops()
        assert [*one.began.values()] == [0.0]
        # Then they do not take the place in turn
        assert loop.endings.telemetry.counters.limited <= 10
        await one.t.advance("6m")
    assert len(one.began) == 6
