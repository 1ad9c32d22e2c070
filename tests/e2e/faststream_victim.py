"""A FastStream consumer that receives one message, prints a line, and never finishes; tests kill it."""

from __future__ import annotations

import asyncio
import logging
import sys

from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub


async def main(url: str, stream: str, group: str, consumer: str) -> None:
    broker = RedisBroker(url, logger=logging.getLogger("victim"))

    @broker.subscriber(stream=StreamSub(stream, group=group, consumer=consumer, last_id="0"))
    async def stuck(_message: str) -> None:
        print("took a message", flush=True)
        await asyncio.Event().wait()

    await FastStream(broker).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
