"""arq: ``URL MESSAGES``."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker

from benchmarks.worker.tally import Tally, body

URL, MESSAGES = sys.argv[1], int(sys.argv[2])

tally = Tally(MESSAGES)


async def handle(_context: dict[str, Any], message: dict[str, Any]) -> None:
    tally.add()


async def main() -> None:
    """Add the messages, handle them until the queue is empty, report."""
    settings = RedisSettings.from_dsn(URL)
    pool = await create_pool(settings)
    for first in range(0, MESSAGES, 100):
        numbers = range(first, min(first + 100, MESSAGES))
        await asyncio.gather(*(pool.enqueue_job("handle", json.loads(body(n))) for n in numbers))
    worker = Worker(
        functions=[func(handle, keep_result=0)],
        redis_settings=settings,
        burst=True,
        max_jobs=100,
        poll_delay=0.01,
        handle_signals=False,
    )
    await worker.main()
    tally.report()
    await worker.close()
    await pool.aclose()


asyncio.run(main())
