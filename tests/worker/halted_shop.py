"""An app for worker processes that a test suspends and resumes. Handlers log when they begin.

``SHOP_SHAPE`` is ``each``, ``batch`` or ``order``. A handler runs until the file ``SHOP_END`` exists.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec

from headwater.worker import App, Batch, Stream


class Order(msgspec.Struct):
    id: int


app = App(os.environ.get("SHOP_URL", "redis://localhost:1"), name="shop", grace="20s")
orders: Stream[Order] = Stream("orders", Order)

END = os.environ.get("SHOP_END", ".")
SHAPE = os.environ.get("SHOP_SHAPE", "each")
OPTIONS: dict[str, Any] = {"group": "g", "claim_after": "600ms", "prefetch": 16}


async def handle(*found: Order) -> None:
    for order in found:
        sys.stderr.write(f"order {order.id} begins\n")
    while not os.path.exists(END):  # noqa: ASYNC110, ASYNC240, PTH110  # the test creates it
        await asyncio.sleep(0.01)


async def one(order: Order) -> None:
    await handle(order)


if SHAPE == "batch":

    @app.batch(orders, **OPTIONS, size=2, linger="10ms")
    async def load(rows: Batch[Order]) -> None:
        await handle(*rows)

elif SHAPE == "order":
    app.consumer(orders, **OPTIONS, concurrency=2, order_by=lambda order: order.id % 6)(one)
else:
    app.consumer(orders, **OPTIONS, concurrency=2)(one)
