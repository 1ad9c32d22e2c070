"""An app that installs handlers of SIGTERM and SIGINT itself, in the way that ``SIGNALS`` names."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from headwater.worker import App
from tests.closing_loop import ClosingLoops
from tests.worker.apps import Order, orders

HOW = os.environ.get("SIGNALS", "import")

app = App(
    os.environ.get("SHOP_URL", "redis://localhost:1"),
    name="signals",
    grace="200ms" if HOW == "stubborn" else "30s",
)


@app.consumer(orders, group="g")
async def bill(order: Order) -> None:
    os.write(2, b"bill begins\n")
    while HOW == "stubborn":
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
    await asyncio.sleep(0.2)
    os.write(2, b"bill ends\n")


def heard(number: int, _frame: Any = None) -> None:
    os.write(2, f"the program hears {number}\n".encode())
    if HOW in ("exit", "stubborn"):
        sys.exit(7)
    if HOW == "raise":
        raise ValueError("the program's handler failed")


def install() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, heard)


@app.on_start
async def start() -> None:
    if HOW == "start":
        install()
    if HOW == "loop":
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, heard, number)


if HOW in ("import", "exit", "raise", "stubborn"):
    install()
if HOW == "closing":
    asyncio.set_event_loop_policy(ClosingLoops())
