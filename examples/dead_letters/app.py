"""A worker group with a fault: it does not know every airport.

    headwater work examples.dead_letters.app:app --workers 2

Flights to an airport that is missing in its table raise KeyError; after three attempts they are dead
letters. So are those that nobody can handle: airlines that do not exist, values of the wrong type.
``KNOWS_ALL=1`` is the repaired version.
"""

from __future__ import annotations

import os

from examples.dead_letters.airports import LATER_ADDED, airports
from headwater.demo.data import Flight, airlines
from headwater.worker import App, Backoff, Dead, Stream

app = App(os.environ.get("FLIGHTS_URL", "redis://127.0.0.1:6379"), name="distances")
flights = Stream("flights", Flight)
names = airlines()
places = airports() | (LATER_ADDED if os.environ.get("KNOWS_ALL") == "1" else {})


@app.consumer(
    flights,
    group="distances",
    claim_after="5s",
    max_deliveries=3,
    retry=Backoff("50ms", factor=2, ceiling="1s"),
)
def place(flight: Flight) -> None:
    """Find where the flight goes, and who flies it."""
    if flight.carrier not in names:
        raise Dead(f"unknown airline {flight.carrier!r}")
    places[flight.dest]
