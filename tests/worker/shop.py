"""An app for worker processes. ``SHOP_URL`` is the address of its store. An entry's ``do`` says what the
handler does:

kill     sends SIGKILL to its own process, as the kernel does when memory runs out
segfault reads the address 0
slow     writes a line to stderr and takes half a second, or ``SHOP_SLOW_SECONDS``
hang     never returns
fail     raises
leave    raises SystemExit
stubborn writes a line to stderr, then ignores every cancellation
break    at its first delivery, cancels the worker's settler task
stop     at its first delivery, calls `App.stop`, then raises
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys

import msgspec

from headwater.worker import App, Backoff, Delivery, Stream


class Order(msgspec.Struct):
    id: int
    do: str = ""


class Invoice(msgspec.Struct):
    order: int
    by: int
    count: int


app = App(os.environ.get("SHOP_URL", "redis://localhost:1"), name="shop", grace="20s")
orders: Stream[Order] = Stream("orders", Order)
invoices: Stream[Invoice] = Stream("invoices", Invoice)


@app.consumer(
    orders,
    group="g",
    claim_after=os.environ.get("SHOP_CLAIM_AFTER", "1s"),
    concurrency=4,
    prefetch=32,
    max_deliveries=int(os.environ.get("SHOP_MAX_DELIVERIES", "1000")),
    max_crashes=int(os.environ.get("SHOP_MAX_CRASHES", "2")),
    retry=Backoff("10ms", ceiling="100ms"),
    into=invoices,
)
async def bill(order: Order, delivery: Delivery) -> Invoice:
    if order.do == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif order.do == "segfault":
        ctypes.string_at(0)
    elif order.do == "hang":
        await asyncio.Event().wait()
    elif order.do == "slow":
        sys.stderr.write("bill is slow\n")
        await asyncio.sleep(float(os.environ.get("SHOP_SLOW_SECONDS", "0.5")))
    elif order.do == "fail":
        raise ValueError("as requested")
    elif order.do == "stubborn":
        sys.stderr.write("bill ignores cancellation\n")
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
    elif order.do == "leave":
        sys.exit(0)
    elif order.do == "break" and delivery.count == 1:
        (settler,) = [task for task in asyncio.all_tasks() if task.get_name().endswith("settler")]
        settler.cancel()
    elif order.do == "stop" and delivery.count == 1:
        app.stop()
        raise ValueError("delivered again after the stop")
    elif order.do == "yield":
        await asyncio.sleep(0.001)
    return Invoice(order=order.id, by=os.getpid(), count=delivery.count)


broken = object()
