"""streaQ: ``URL MESSAGES``."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from streaq import Worker

from benchmarks.worker.tally import BATCH, Tally, body

URL, MESSAGES = sys.argv[1], int(sys.argv[2])

worker = Worker(redis_url=URL, handle_signals=False)
tally = Tally(MESSAGES)
done = asyncio.Event()


@worker.task(ttl=0)
async def handle(message: dict[str, Any]) -> None:
    if tally.add():
        done.set()


async def main() -> None:
    """Add the messages, handle them, report."""
    async with worker:
        for first in range(0, MESSAGES, BATCH):
            numbers = range(first, min(first + BATCH, MESSAGES))
            await worker.enqueue_many([handle.enqueue(json.loads(body(n))) for n in numbers])
    running = asyncio.create_task(worker.run_async())
    await done.wait()
    tally.report()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


asyncio.run(main())
