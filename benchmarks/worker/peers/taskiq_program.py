"""taskiq on a stream (taskiq-redis): ``URL MESSAGES``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from benchmarks.worker.tally import BATCH, Tally, body

URL, MESSAGES = sys.argv[1], int(sys.argv[2])

broker = RedisStreamBroker(URL, consumer_id="0", xread_count=BATCH)
tally = Tally(MESSAGES)
done = asyncio.Event()


@broker.task
async def handle(message: dict[str, Any]) -> None:
    if tally.add():
        done.set()


async def main() -> None:
    """Add the messages, handle them, report."""
    await broker.startup()
    for first in range(0, MESSAGES, 100):
        numbers = range(first, min(first + 100, MESSAGES))
        await asyncio.gather(*(handle.kiq(json.loads(body(number))) for number in numbers))
    worker = asyncio.create_task(run_receiver_task(broker))
    await done.wait()
    tally.report()
    worker.cancel()
    os._exit(0)  # the broker's listener does not end when its task is cancelled


asyncio.run(main())
