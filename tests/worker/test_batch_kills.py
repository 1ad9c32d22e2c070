"""Results of batches are published exactly once while worker processes are killed and suspended."""

from __future__ import annotations

import random
import signal
from contextlib import ExitStack

import pytest

from tests.worker.apps import Store, elapsed, eventually
from tests.worker.batch_shop import Row, loaded, rows
from tests.worker.processes import one_worker

SHOP = "tests.worker.batch_shop:app"
MESSAGES = 6_000

pytestmark = pytest.mark.slow


async def test_every_message_has_one_result_when_workers_are_killed_and_suspended(
    store: Store,
) -> None:
    # Given a backlog in which some messages fail once, and three processes
    chance = random.Random(19)
    async with store.look.pipeline(transaction=False) as pipeline:
        for number in range(MESSAGES):
            row = Row(number, "fail" if chance.random() < 0.05 else "")
            pipeline.xadd("rows", dict(rows.codec.encode(row)))
        await pipeline.execute()
    with ExitStack() as stack:
        workers = [stack.enter_context(one_worker(store.url, target=SHOP)) for _ in range(3)]
        await eventually(lambda: store.look.xlen("loaded"))

        # When processes are killed, or suspended for longer than claim_after
        for kind in ("kill", "stop", "kill", "stop"):
            await eventually(elapsed(chance.uniform(0.05, 0.2)))
            victim = chance.choice(workers)
            if kind == "kill":
                victim.signal(signal.SIGKILL)
                victim.wait()
                workers.remove(victim)
                workers.append(stack.enter_context(one_worker(store.url, target=SHOP)))
            else:
                victim.signal(signal.SIGSTOP)
                await eventually(elapsed(0.7))
                victim.signal(signal.SIGCONT)
        await eventually(lambda: store.settled(stream="rows"))

    # Then each message has one result
    assert sorted(row.id for row in await store.results(loaded)) == list(range(MESSAGES))
    assert await store.dead("rows") == []
