"""A worker group with a fault: its table lacks some airports.

    headwater work examples.dead_letters.app:app --workers 2

A flight to a missing airport raises KeyError; after three attempts it becomes a dead letter. So do flights
that cannot be handled at all: with an unknown airline, or with values of the wrong type. With
``KNOWS_ALL=1`` the table is complete.
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
    """Look up the flight's airline and destination."""
    if flight.carrier not in names:
        raise Dead(f"unknown airline {flight.carrier!r}")
    places[flight.dest]
