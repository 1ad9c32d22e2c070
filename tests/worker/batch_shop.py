"""An app with a batch consumer, for worker processes. ``SHOP_URL`` is the address of its store.

Each message has one result, published in one step with the acknowledgement of its batch. A message with
``do="fail"`` fails at its first delivery.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from headwater.worker import App, Backoff, Batch, Stream


class Row(msgspec.Struct):
    id: int
    do: str = ""


app = App(os.environ.get("SHOP_URL", "redis://localhost:1"), name="rows", grace="20s")
rows: Stream[Row] = Stream("rows", Row)
loaded: Stream[Row] = Stream("loaded", Row)


@app.batch(
    rows,
    group="g",
    size=20,
    linger="10ms",
    claim_after="500ms",
    concurrency=2,
    max_deliveries=1000,
    retry=Backoff("30ms"),
    into=loaded,
)
async def load(batch: Batch[Row]) -> list[Row]:
    done = []
    for row, delivery in zip(batch, batch.deliveries, strict=True):
        if row.do == "fail" and not delivery.redelivered:
            batch.fail(row, "as requested")
        else:
            done.append(row)
    await asyncio.sleep(0.005)
    return done
