"""The worker application of the demo: ``headwater work headwater.demo.ops:app --workers 3``.

Every flight of ``flights`` is judged and enriched by group ``ops`` and goes to ``flights.enriched``
in one step with its acknowledgement; one that cannot be what happened becomes a dead letter.

HEADWATER_DEMO_URL is the store's address. With HEADWATER_DEMO_PAUSE, in seconds, each flight waits
so long, as if something were looked up elsewhere: a run of few flights would be over before anything
could be shown. From SIGUSR1 on a worker waits a second over each, as if that elsewhere were in trouble.
"""

from __future__ import annotations

import asyncio
import os
import signal

from headwater.demo.data import Flight, airlines
from headwater.demo.enrich import Enriched, Invalid, enrich
from headwater.demo.names import (
    CLAIM_AFTER_SECONDS,
    ENRICHED,
    GROUP,
    PAUSE_VARIABLE,
    PAUSING,
    SLOW_SECONDS,
    SLOW_SIGNAL,
    STREAM,
    URL_VARIABLE,
)
from headwater.worker import App, Dead, Delivery, Stream

PAUSE = float(os.environ.get(PAUSE_VARIABLE, "0"))

pause = PAUSE
"""Seconds that the next flight waits."""


def slow_down(_signal: int, _frame: object) -> None:
    """What was looked up elsewhere takes its time from now on."""
    global pause
    pause = SLOW_SECONDS


signal.signal(SLOW_SIGNAL, slow_down)

app = App(os.environ.get(URL_VARIABLE, "redis://127.0.0.1:6379"), name="demo")
flights = Stream(STREAM, Flight, codec="json")
enriched = Stream(ENRICHED, Enriched)
names = airlines()


@app.consumer(
    flights,
    group=GROUP,
    claim_after=f"{CLAIM_AFTER_SECONDS}s",
    # A handler that never waits gains nothing from company; a worker gains from a long buffer.
    concurrency=PAUSING if PAUSE else 1,
    prefetch=8 * PAUSING if PAUSE else 1_000,
    into=enriched,
)
async def enrich_flight(flight: Flight, delivery: Delivery) -> Enriched:
    """The flight with its airline and delay class."""
    if pause:
        await asyncio.sleep(pause)
    try:
        return enrich(
            flight,
            names,
            source_id=delivery.id,
            worker=delivery.consumer,
            deliveries=delivery.count,
        )
    except Invalid as fault:
        raise Dead(str(fault)) from fault
