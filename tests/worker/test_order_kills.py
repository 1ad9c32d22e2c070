"""Order by key holds when the reading process is killed, or suspended and resumed."""

from __future__ import annotations

import itertools
import random
import signal
from collections import defaultdict
from contextlib import ExitStack
from typing import Any

import pytest

from headwater.messages.keys import group_reader_key
from headwater.worker import Stream
from tests.worker.apps import Store, elapsed, eventually
from tests.worker.ordered_shop import Step, begun, done, steps
from tests.worker.processes import WorkerProcess, one_worker

SHOP = "tests.worker.ordered_shop:app"
KEYS = 20
NUMBERS = 40

pytestmark = pytest.mark.slow


async def send(
    store: Store, chance: random.Random, *, long: float = 0.0, begin: tuple[str, ...] = ()
) -> None:
    """Add all steps, with the keys interleaved: first a long one of each key of ``begin``. Some steps fail once; the part
    ``long`` of them takes long."""
    left = {str(key): 0 for key in range(KEYS)}
    first = [*begin]
    async with store.look.pipeline(transaction=False) as pipeline:
        while left:
            do = "fail" if chance.random() < 0.1 else "long" if chance.random() < long else ""
            key, do = (first.pop(), "long") if first else (chance.choice(list(left)), do)
            step = Step(key, left[key], do)
            pipeline.xadd("steps", dict(steps.codec.encode(step)))
            left[key] += 1
            if left[key] == NUMBERS:
                del left[key]
        await pipeline.execute()


async def numbers(store: Store, stream: Stream[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for step in await store.results(stream):
        found[step.key].append(step.number)
    return found


async def reader(store: Store, workers: list[WorkerProcess]) -> WorkerProcess:
    """The worker that is the reader now."""

    async def found_reader() -> WorkerProcess | None:
        name = await store.look.get(group_reader_key("steps", "g"))
        found = [one for one in workers if name and f"-{one.pid}-".encode() in name]
        return found[0] if found else None

    worker: WorkerProcess = await eventually(found_reader)
    return worker


async def settled(store: Store) -> bool:
    return await store.settled(stream="steps")


async def test_order_holds_when_readers_are_killed(store: Store) -> None:
    # Given two processes
    chance = random.Random(17)
    await send(store, chance)
    with ExitStack() as stack:
        workers = [stack.enter_context(one_worker(store.url, target=SHOP)) for _ in range(2)]

        # When the reading one is killed, four times
        for _kill in range(4):
            victim = await reader(store, workers)
            await eventually(elapsed(chance.uniform(0.1, 0.3)))
            victim.signal(signal.SIGKILL)
            victim.wait()
            workers.remove(victim)
            workers.append(stack.enter_context(one_worker(store.url, target=SHOP)))
        await eventually(lambda: settled(store))

    # Then each key began in order, only unsettled steps began again, and each step has one result
    expected = {str(key): list(range(NUMBERS)) for key in range(KEYS)}
    assert await numbers(store, done) == expected
    for key, order in (await numbers(store, begun)).items():
        steps_taken = {after - before for before, after in itertools.pairwise(order)}
        assert steps_taken <= {0, 1}, (key, order)


async def test_order_holds_when_busy_readers_let_others_read_and_are_killed(store: Store) -> None:
    # Given three processes with two slots each, and steps that take longer than a reader waits for a slot, of which two
    # are the first
    chance = random.Random(19)
    await send(store, chance, long=0.01, begin=("0", "1"))
    slots = {"SHOP_SLOTS": "2"}
    readers: set[int] = set()
    with ExitStack() as stack:
        workers = [
            stack.enter_context(one_worker(store.url, target=SHOP, **slots)) for _ in range(3)
        ]

        # When any of them is killed, three times
        for _kill in range(3):
            for _look in range(6):
                readers.add((await reader(store, workers)).pid)
                await eventually(elapsed(chance.uniform(0.1, 0.3)))
            victim = workers.pop(chance.randrange(3))
            victim.signal(signal.SIGKILL)
            victim.wait()
            workers.append(stack.enter_context(one_worker(store.url, target=SHOP, **slots)))
        await eventually(lambda: settled(store))

    # Then several processes read in turn, and each key was in order
    assert len(readers) > 1
    expected = {str(key): list(range(NUMBERS)) for key in range(KEYS)}
    assert await numbers(store, done) == expected
    for key, order in (await numbers(store, begun)).items():
        steps_taken = {after - before for before, after in itertools.pairwise(order)}
        assert steps_taken <= {0, 1}, (key, order)


async def test_the_order_of_results_holds_when_a_reader_is_suspended_and_resumed(
    store: Store,
) -> None:
    chance = random.Random(18)
    await send(store, chance)
    with ExitStack() as stack:
        workers = [stack.enter_context(one_worker(store.url, target=SHOP)) for _ in range(2)]
        # When the reader is suspended for longer than its key lasts, and resumed while the next one reads
        for _stop in range(3):
            victim = await reader(store, workers)
            await eventually(elapsed(chance.uniform(0.1, 0.3)))
            victim.signal(signal.SIGSTOP)
            await reader(store, [one for one in workers if one is not victim])
            await eventually(elapsed(chance.uniform(0.0, 0.1)))
            victim.signal(signal.SIGCONT)
        await eventually(lambda: settled(store))
    found = await numbers(store, done)
    for key, order in found.items():
        if order != list(range(NUMBERS)):
            print(
                key,
                order,
                [(r.number, r.by, r.count) for r in await store.results(begun) if r.key == key][
                    :40
                ],
            )
            print([(d.entry_id, d.error, d.fields) for d in await store.dead("steps")])
    assert found == {str(key): list(range(NUMBERS)) for key in range(KEYS)}
