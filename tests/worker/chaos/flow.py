"""The app of the chaos campaign. ``CHAOS_URL`` is the address of its store, ``CHAOS_RUNS`` a directory.

``bill`` publishes results, ``ship`` publishes results of batches, and ``audit`` is a plain handler. ``press`` runs in pool
processes, of which some die, ``meter`` has a limit, and ``tick`` runs once a second. Before it does anything else, each run of a handler appends a line to the file ``runs-PID`` of the directory:
``CONSUMER ID TIME``, by the monotonic clock that all processes share; those of a pool process are in the file of its
worker. A line ``stall FROM TO`` records that
the machine stalled this process. The file ``tree-PID`` names the source tree that the process runs.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec

import headwater
from headwater.worker import Again, App, Backoff, Batch, Dead, Delivery, Limit, Stream, Tick

CLAIM_AFTER: Final = "1s"
TICK_SECONDS: Final = 0.05
HOLD_MICROSECONDS: Final = 1_500_000
"""Longer than ``CLAIM_AFTER``."""
STALL_SECONDS: Final = 0.1
"""Delay of a tick that counts as a stall. Leases are renewed every 0.11 s and end after 1 s."""


class Order(msgspec.Struct):
    id: int
    do: str = ""


class Invoice(msgspec.Struct):
    order: int


class Runs:
    """The file of runs of this process."""

    def __init__(self, directory: str, *, pid: int) -> None:
        path = Path(directory, f"runs-{pid}")
        path.with_name(f"tree-{pid}").write_text(headwater.__file__)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def record(self, consumer: str, *ids: int) -> None:
        """Record that a handler runs these messages now."""
        now = time.monotonic()
        os.write(self._file, "".join(f"{consumer} {one} {now:.4f}\n" for one in ids).encode())

    def watch(self) -> None:
        """Record stalls of this process, until it ends."""
        before = time.monotonic()
        while True:
            time.sleep(TICK_SECONDS)
            now = time.monotonic()
            if now - before > TICK_SECONDS + STALL_SECONDS:
                os.write(self._file, f"stall {before:.4f} {now:.4f}\n".encode())
            before = now


app = App(os.environ.get("CHAOS_URL", "redis://localhost:1"), name="chaos", grace="20s")
orders: Stream[Order] = Stream("orders", Order)
invoices: Stream[Invoice] = Stream("invoices", Invoice)
parcels: Stream[Invoice] = Stream("parcels", Invoice)
_runs: Runs | None = None

COMMON: Final[dict[str, Any]] = {
    "claim_after": CLAIM_AFTER,
    "retry": Backoff("50ms", ceiling="400ms"),
}
RATE: Final = 2_000
BURST: Final = 500
"""The limit of ``meter``, per second."""
SINGLE: Final[dict[str, Any]] = {**COMMON, "concurrency": 4, "prefetch": 64}


def record(consumer: str, *ids: int) -> None:
    """Record that a handler runs these messages."""
    assert _runs is not None, "only worker processes handle messages"
    _runs.record(consumer, *ids)


if multiprocessing.parent_process() is not None:
    _runs = Runs(os.environ["CHAOS_RUNS"], pid=os.getppid())
elif "headwater.worker.process.main" in sys.orig_argv:  # a supervisor imports the app too
    _runs = Runs(os.environ["CHAOS_RUNS"], pid=os.getpid())
    threading.Thread(target=_runs.watch, daemon=True).start()


@app.consumer(orders, group="bill", into=invoices, dead="dead.bill", **SINGLE)
async def bill(order: Order, delivery: Delivery) -> Invoice:
    record("bill", order.id)
    match order.do:
        case "yield":
            await asyncio.sleep(0.001)
        case "again" if delivery.count == 1:
            raise Again(after=f"{50 + order.id % 300}ms")
        case "late" if delivery.count == 1:
            raise Again(after="1500ms")  # longer than claim_after
        case "fail" if delivery.count == 1:
            raise ValueError("as requested")
        case "dead":
            raise Dead("as requested")
        case "segfault":
            ctypes.string_at(0)
        case "hold":
            ctypes.PyDLL(None).usleep(HOLD_MICROSECONDS)  # keeps the interpreter's lock
    return Invoice(order.id)


@app.consumer(orders, group="audit", dead="dead.audit", **SINGLE)
async def audit(order: Order) -> None:
    record("audit", order.id)
    if order.do == "yield":
        await asyncio.sleep(0.001)


@app.batch(orders, group="ship", size=50, linger="20ms", into=parcels, dead="dead.ship", **COMMON)
async def ship(rows: Batch[Order]) -> list[Invoice]:
    record("ship", *(order.id for order in rows))
    sent = []
    for order, delivery in zip(rows, rows.deliveries, strict=True):
        if order.do == "again" and delivery.count == 1:
            rows.again(order, after=f"{50 + order.id % 300}ms")
        else:
            sent.append(Invoice(order.id))
    return sent


@app.consumer(orders, group="press", dead="dead.press", executor="process", concurrency=2, **COMMON)
def press(order: Order, delivery: Delivery) -> None:
    record("press", order.id)
    if order.do == "exit" and delivery.count == 1:
        os._exit(7)


@app.consumer(
    orders, group="meter", dead="dead.meter", limit=Limit(RATE, per="1s", burst=BURST), **SINGLE
)
async def meter(order: Order) -> None:
    record("meter", order.id)


@app.every("1s", missed="all", claim_after=CLAIM_AFTER)
async def tick(at: Tick) -> None:
    record("tick", int(at.time.timestamp()))
