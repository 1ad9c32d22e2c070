"""No message waits in a busy process for longer than a second while another process of its group is idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from headwater.worker import App, Batch, Delivery, Limit, Stream
from headwater.worker.running import Running
from tests.worker.apps import Store, eventually, working

pytestmark = pytest.mark.slow


class Task(msgspec.Struct):
    id: int
    key: str = ""


tasks: Stream[Task] = Stream("tasks", Task)

LONG = range(2)
"""The ids of long tasks: their handlers wait until the test lets them go on."""

WORKERS = 4


class Work:
    """Several workers of one consumer, and what they have done."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.go_on = asyncio.Event()
        self.began: list[tuple[int, int]] = []
        """Worker and task, in the order in which handlers began."""
        self.done: set[int] = set()
        self.counts: set[int] = set()
        self.apps: list[App] = []

    async def handle(self, worker: int, task: Task) -> None:
        self.began.append((worker, task.id))
        if task.id in LONG:
            await self.go_on.wait()
        self.done.add(task.id)

    @asynccontextmanager
    async def workers(
        self, count: int, declare: Callable[[App, int], object]
    ) -> AsyncIterator[list[Running]]:
        async with AsyncExitStack() as stack:
            self.apps = apps = [self.store.app() for _ in range(count)]
            for number, app in enumerate(apps):
                declare(app, number)
            running = [await stack.enter_async_context(working(app)) for app in apps]
            stack.callback(self.go_on.set)  # before the workers stop
            yield running

    def plain(self, **options: Any) -> Callable[[App, int], object]:
        def declare(app: App, number: int) -> None:
            @app.consumer(tasks, group="g", concurrency=2, **options)
            async def work(task: Task, delivery: Delivery) -> None:
                self.counts.add(delivery.count)
                await self.handle(number, task)

        return declare

    def ordered(self, app: App, number: int) -> None:
        @app.consumer(tasks, group="g", concurrency=2, order_by=lambda task: task.key)
        async def work(task: Task, delivery: Delivery) -> None:
            self.counts.add(delivery.count)
            await self.handle(number, task)

    def batches(self, app: App, number: int) -> None:
        @app.batch(tasks, group="g", size=2, linger="10ms")
        async def work(rows: Batch[Task]) -> None:
            for task in rows:
                await self.handle(number, task)


async def send(ids: range, key: str = "") -> None:
    await tasks.send_many([Task(number, key) for number in ids])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prefetch": 32},
        {"limit": Limit(1_000, per="1s", burst=100)},
        {"limit": Limit(4, per="1s", burst=42)},
    ],
    ids=["measured", "prefetch=32", "limited", "waiting for its limit"],
)
async def test_quick_messages_do_not_wait_behind_long_ones(
    any_store: Store, options: dict[str, Any]
) -> None:
    # Given workers that have found messages to be quick, and two long ones in one process
    work = Work(any_store)
    async with work.workers(1, work.plain(**options)):
        await send(range(100, 140))
        await eventually(lambda: len(work.done) == 40)
        await send(LONG)
        await eventually(lambda: len(work.began) == 42)
        # When quick ones arrive there, and other processes are idle
        await send(range(2, 10))
        async with work.workers(WORKERS - 1, work.plain(**options)):
            # Then all of them are handled meanwhile, and nothing was counted twice
            await eventually(lambda: work.done >= set(range(2, 10)))
    assert work.counts == {1}


async def test_the_first_process_does_not_take_all(store: Store) -> None:
    work = Work(store)

    def declare(app: App, number: int) -> None:
        @app.consumer(tasks, group="g", concurrency=2)
        async def slow(task: Task) -> None:
            work.began.append((number, task.id))
            await work.go_on.wait()

    async with work.workers(WORKERS, declare) as running:
        await eventually(
            lambda: all(loop.fetcher.joined for r in running for loop in r.loops.values())
        )
        await work.apps[0].send_many(tasks, [Task(number) for number in range(64)])
        await eventually(lambda: len(work.began) == 2 * WORKERS)
        assert sorted({worker for worker, _task in work.began}) == [*range(WORKERS)]
        # One waits behind those that run, in each process
        assert len(await store.pending(stream="tasks")) <= 3 * WORKERS


async def test_quick_messages_do_not_wait_behind_a_long_batch(store: Store) -> None:
    work = Work(store)
    async with work.workers(1, work.batches):
        await send(range(100, 120))
        await eventually(lambda: len(work.done) == 20)
        await send(LONG)
        await eventually(lambda: len(work.began) == 21)
        await send(range(2, 10))
        async with work.workers(1, work.batches):
            await eventually(lambda: work.done >= set(range(2, 10)))


async def test_a_process_reads_nothing_ahead_after_it_had_to_hand_back(store: Store) -> None:
    # Given one process, all of whose slots are busy, and a message that waits
    work = Work(store)
    async with work.workers(1, work.plain()) as (running,):
        await send(range(6))
        await eventually(lambda: len(work.began) == 2)
        (loop,) = running.loops.values()
        # When it was handed back, then nothing else is read until a handler has ended
        await eventually(lambda: loop.endings.telemetry.counters.handed_back)
        assert loop.pool.overfull
        assert len(loop.in_flight.owned) == 2
        work.go_on.set()
        await eventually(lambda: len(work.done) == 6)
        assert work.counts == {1}


async def test_a_busy_key_does_not_fill_the_room_of_other_keys(any_store: Store) -> None:
    # Given an ordered consumer, and a key with more messages behind a long one than it has room for
    work = Work(any_store)

    def declare(app: App, number: int) -> None:
        @app.consumer(tasks, group="g", concurrency=2, prefetch=4, order_by=lambda task: task.key)
        async def work_on(task: Task, delivery: Delivery) -> None:
            work.counts.add(delivery.count)
            await work.handle(number, task)

    async with work.workers(1, declare):
        await send(range(1), "a")
        await send(range(10, 40), "a")
        await send(range(40, 44), "b")
        # When messages of another key follow, then they are handled meanwhile
        await eventually(lambda: work.done >= {*range(40, 44)})
        assert work.done.isdisjoint(range(10, 40))
        # And the busy key continues in order
        work.go_on.set()
        await eventually(lambda: len(work.done) == 35)
    assert [task for _worker, task in work.began if 10 <= task < 40] == [*range(10, 40)]
    assert work.counts == {1}


async def test_other_keys_do_not_wait_behind_long_messages_of_an_ordered_consumer(
    any_store: Store,
) -> None:
    # Given an ordered consumer, both slots of whose reader are busy, and messages that follow in these keys
    work = Work(any_store)
    async with work.workers(1, work.ordered):
        await send(range(1), "a")
        await send(range(1, 2), "b")
        await eventually(lambda: len(work.began) == 2)
        await send(range(10, 20), "a")
        await send(range(20, 30), "b")
        # When messages of other keys arrive, and other processes are idle
        await send(range(30, 40), "c")
        await send(range(40, 50), "d")
        async with work.workers(WORKERS - 1, work.ordered):
            # Then these are handled meanwhile, and the busy keys wait
            await eventually(lambda: work.done >= {*range(30, 50)})
            assert work.done.isdisjoint(range(10, 30))
            # And continue in order
            work.go_on.set()
            await eventually(lambda: len(work.done) == 42)
    for key in (range(10, 20), range(20, 30), range(30, 40), range(40, 50)):
        assert [task for _worker, task in work.began if task in key] == [*key]
    assert work.counts == {1}


async def test_all_processes_handle_long_messages_of_an_ordered_consumer(store: Store) -> None:
    work = Work(store)

    def declare(app: App, number: int) -> None:
        @app.consumer(tasks, group="g", concurrency=2, order_by=lambda task: task.id)
        async def slow(task: Task) -> None:
            work.began.append((number, task.id))
            await work.go_on.wait()
            work.done.add(task.id)

    async with work.workers(WORKERS, declare):
        await work.apps[0].send_many(tasks, [Task(number) for number in range(32)])
        await eventually(lambda: len(work.began) == 2 * WORKERS)
        assert sorted({worker for worker, _task in work.began}) == [*range(WORKERS)]
        # When all are busy, then the first that is free goes on
        work.go_on.set()
        await eventually(lambda: len(work.done) == 32)
    assert len(work.began) == 32
