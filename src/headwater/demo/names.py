"""What the processes of the demo must agree on."""

from __future__ import annotations

import signal

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

SLOW_SIGNAL = signal.SIGUSR1
SLOW_SECONDS = 1.0
"""After that signal a worker waits so long over each flight, and its buffer fills."""
