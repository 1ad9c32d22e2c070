"""An app with an ordered consumer, for worker processes. ``SHOP_URL`` is the address of its store.

The handler adds an entry to the stream ``begun`` at each run. Each result is published to ``done`` in
one step with the acknowledgement. A step with ``do="fail"`` raises at its first delivery, one with ``do="long"`` takes
1.5 seconds. ``SHOP_SLOTS`` is the number of slots.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from headwater.worker import App, Backoff, Delivery, Stream


class Step(msgspec.Struct):
    key: str
    number: int
    do: str = ""


class Run(msgspec.Struct):
    key: str
    number: int
    by: int
    count: int


app = App(os.environ.get("SHOP_URL", "redis://localhost:1"), name="steps", grace="20s")
steps: Stream[Step] = Stream("steps", Step)
begun: Stream[Run] = Stream("begun", Run)
done: Stream[Step] = Stream("done", Step)


@app.consumer(
    steps,
    group="g",
    order_by=lambda step: step.key,
    claim_after=os.environ.get("SHOP_CLAIM_AFTER", "500ms"),
    concurrency=int(os.environ.get("SHOP_SLOTS", "8")),
    prefetch=32,
    max_deliveries=1000,
    retry=Backoff("30ms"),
    into=done,
)
async def handle(step: Step, delivery: Delivery) -> Step:
    await begun.send(Run(step.key, step.number, os.getpid(), delivery.count))
    if step.do == "fail" and not delivery.redelivered:
        raise ValueError("as requested")
    await asyncio.sleep(1.5 if step.do == "long" else 0.002)
    return step
