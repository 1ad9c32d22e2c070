"""What the processes of the demo must agree on."""

from __future__ import annotations

STREAM = "flights"
ENRICHED = "flights.enriched"
GROUP = "ops"

URL_VARIABLE = "HEADWATER_DEMO_URL"
"""The store's address, for the workers and for the pipeline's file."""

PAUSE_VARIABLE = "HEADWATER_DEMO_PAUSE"
"""How long a worker waits over each flight, in seconds."""

INPUTS_VARIABLE = "HEADWATER_DEMO_INPUTS"
"""The directory of the pipeline's static tables."""

CLAIM_AFTER_SECONDS = 5
"""Long for a worker that lives, however busy the machine is; short for one who watches."""

APP = "headwater.demo.ops:app"
"""What ``headwater work`` is told to run."""

PAUSING = 8
"""Flights that a worker handles at a time when it waits over each."""
