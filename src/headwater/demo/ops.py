"""The worker application of the demo: ``headwater work headwater.demo.ops:app --workers 3``.

Group ``ops`` validates and enriches every entry of ``flights`` and publishes the result to
``flights.enriched`` in one step with the acknowledgement. An invalid flight becomes a dead letter.

HEADWATER_DEMO_URL is the store's url. HEADWATER_DEMO_PAUSE is the pause for each flight, in seconds, as if
another service were called. Without the pause, a run of few flights ends before workers can be stopped.
After SIGUSR1, a worker pauses for a second for each flight, as if that service were slow.
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
    PAUSED_CONCURRENCY,
    SLOW_SECONDS,
    SLOW_SIGNAL,
    STREAM,
    URL_VARIABLE,
)
from headwater.worker import App, Dead, Delivery, Stream

PAUSE = float(os.environ.get(PAUSE_VARIABLE, "0"))

pause = PAUSE
"""The current pause for each flight, in seconds."""


def slow_down(_signal: int, _frame: object) -> None:
    """Set the pause before each flight to `SLOW_SECONDS`."""
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
    # A handler that never waits does not profit from concurrency; a long buffer saves round trips.
    concurrency=PAUSED_CONCURRENCY if PAUSE else 1,
    prefetch=8 * PAUSED_CONCURRENCY if PAUSE else 1_000,
    into=enriched,
)
async def enrich_flight(flight: Flight, delivery: Delivery) -> Enriched:
    """Return the flight with its airline and delay class."""
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
