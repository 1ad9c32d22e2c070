"""Limits hold for several processes together, on every server, also when processes die."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from headwater.errors import HeadwaterError
from headwater.worker import App, Delivery, Limit, Stream
from headwater.worker.running import Running
from tests.worker.apps import Store, buried, eventually, killed, worker, working

WORKERS = 4


class Call(msgspec.Struct):
    id: int
    customer: str = ""


calls: Stream[Call] = Stream("calls", Call)

pytestmark = pytest.mark.slow


def received(running: list[Running]) -> int:
    return sum(
        loop.endings.telemetry.counters.received for one in running for loop in one.loops.values()
    )


def declare(app: App, began: list[Call], counts: set[int], **options: Any) -> None:
    @app.consumer(calls, group="g", concurrency=4, **options)
    async def call_out(call: Call, delivery: Delivery) -> None:
        began.append(call)
        counts.add(delivery.count)


async def _handled(
    store: Store, began: list[Call], counts: set[int], sent: list[Call], **options: Any
) -> tuple[float, int]:
    """Handle these calls by several workers. Return how long it took, and how many entries they read."""
    apps = [store.app() for _ in range(WORKERS)]
    async with AsyncExitStack() as stack:
        for app in apps:
            declare(app, began, counts, **options)
        running = [await stack.enter_async_context(working(app)) for app in apps]
        start = time.monotonic()
        await apps[0].send_many(calls, sent)
        await eventually(lambda: store.settled(stream="calls"))
        return time.monotonic() - start, received(running)


async def test_workers_together_do_not_exceed_the_rate(any_store: Store) -> None:
    began: list[Call] = []
    counts: set[int] = set()
    sent = [Call(n) for n in range(100)]
    limit = Limit(50, per="1s", burst=10)
    took, read = await _handled(any_store, began, counts, sent, limit=limit)
    assert sorted(call.id for call in began) == list(range(100))
    assert 100 <= 10 + 50 * took + 1
    assert counts == {1}
    assert read == 100


async def test_keys_wait_in_the_store_for_their_turn(any_store: Store) -> None:
    began: list[Call] = []
    counts: set[int] = set()
    sent = [Call(n, "busy") for n in range(30)] + [Call(n, f"c{n}") for n in range(30, 60)]
    limit = [Limit(20, per="1s", by="customer"), Limit(10_000, per="1s", burst=1_000)]
    took, read = await _handled(any_store, began, counts, sent, limit=limit)
    assert sorted(call.id for call in began) == list(range(60))
    assert 30 <= 1 + 20 * took + 1
    assert counts == {1}
    assert read <= 60 + 2 * 30


async def test_a_worker_without_lua_says_so_at_its_start(store: Store) -> None:
    # Given a user who may not run scripts
    words = ["on", ">pw", "~*", "&*", "+@all", "-@scripting"]
    await store.look.execute_command("ACL", "SETUSER", "no-lua", *words)
    app = App(store.url.replace("redis://", "redis://no-lua:pw@"), name="test")

    @app.consumer(calls, group="g", limit=Limit(1, per="1s"))
    async def call_out(call: Call) -> None: ...

    # Then a consumer with a limit does not start, and names the rule that is missing
    with pytest.raises(HeadwaterError, match=r"cannot join group 'g'.*\+eval"):
        await app.run()


class Busy:
    """Counts what runs at once, in all workers of a test."""

    def __init__(self, seed: int) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: set[int] = set()
        self.order: list[int] = []
        self.chance = random.Random(seed)

    def declare(self, app: App, **options: Any) -> None:
        @app.consumer(calls, group="g", concurrency=4, **options)
        async def call_out(call: Call) -> None:
            self.order.append(call.id)
            self.now[call.customer] += 1
            self.most[call.customer] = max(self.most[call.customer], self.now[call.customer])
            try:
                await asyncio.sleep(self.chance.uniform(0, 0.01))
                self.done.add(call.id)
            finally:
                self.now[call.customer] -= 1


@pytest.mark.parametrize("by", ["customer", None])
async def test_no_more_run_at_once_in_all_workers(any_store: Store, by: str | None) -> None:
    busy = Busy(1)
    apps = [any_store.app() for _ in range(WORKERS)]
    async with AsyncExitStack() as stack:
        for app in apps:
            busy.declare(app, limit=Limit(concurrent=3, by=by))
            await stack.enter_async_context(working(app))
        names = ["a", "b"] if by else ["a"]
        await apps[0].send_many(calls, [Call(n, names[n % len(names)]) for n in range(120)])
        await eventually(lambda: any_store.settled(stream="calls"))
    assert busy.done == set(range(120))
    assert max(busy.most.values()) <= 3
    # And none was overtaken by many: the next is who has waited for longest, in whichever process
    assert max(place - one for place, one in enumerate(busy.order)) <= 60


async def test_places_survive_the_death_of_processes(any_store: Store) -> None:
    # Given workers that are killed again and again while they have places
    busy = Busy(2)
    limit = Limit(concurrent=2, by="customer")

    def another() -> Running:
        app = any_store.app()
        busy.declare(app, limit=limit, claim_after="300ms", max_deliveries=50)
        running = worker(app)
        running.start()
        return running

    running = [another() for _ in range(WORKERS)]
    dead = []
    async with any_store.app() as sender:
        await sender.send_many(calls, [Call(n, f"c{n % 5}") for n in range(150)])
        for _ in range(8):
            await asyncio.sleep(0.05)
            victim = running.pop(0)
            killed(victim)
            dead.append(victim)
            running.append(another())
        await eventually(lambda: any_store.settled(stream="calls"))
    for one in running:
        await one.stop(10)
    for one in dead:
        await buried(one)
    # Then every call was handled, and no more than two of a customer ran at once
    assert busy.done == set(range(150))
    assert max(busy.most.values()) <= 2
