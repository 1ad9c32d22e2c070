"""FastStream on a stream, one by one or in batches: ``URL MESSAGES single|batch``."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub
from redis.asyncio import Redis

from benchmarks.worker.tally import BATCH, GROUP, STREAM, Tally, body

URL, MESSAGES, KIND = sys.argv[1], int(sys.argv[2]), sys.argv[3]

broker = RedisBroker(URL, logger=None)
app = FastStream(broker, logger=None)
tally = Tally(MESSAGES)
read = StreamSub(
    STREAM, group=GROUP, consumer="one", batch=KIND == "batch", max_records=BATCH, last_id=">"
)

if KIND == "batch":

    @broker.subscriber(stream=read)
    async def handle_batch(messages: list[dict[str, Any]]) -> None:
        if tally.add(len(messages)):
            app.exit()

else:

    @broker.subscriber(stream=read)
    async def handle(message: dict[str, Any]) -> None:
        if tally.add():
            app.exit()


async def fill() -> None:
    """Publish with FastStream, many messages concurrently."""
    async with RedisBroker(URL, logger=None) as publisher, Redis.from_url(URL) as client:
        await client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
        for first in range(0, MESSAGES, BATCH):
            pipeline = client.pipeline(transaction=False)
            for number in range(first, min(first + BATCH, MESSAGES)):
                message = json.loads(body(number))
                await publisher.publish(message, stream=STREAM, pipeline=pipeline)
            await pipeline.execute()


async def main() -> None:
    """Add the messages, handle them, report."""
    await fill()
    await app.run()
    tally.report()


asyncio.run(main())
