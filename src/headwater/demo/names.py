"""Names and settings that the processes of the demo share."""

from __future__ import annotations

import signal

STREAM = "flights"
ENRICHED = "flights.enriched"
GROUP = "ops"

URL_VARIABLE = "HEADWATER_DEMO_URL"
"""Variable with the store's url, for the workers and the pipeline's file."""

PAUSE_VARIABLE = "HEADWATER_DEMO_PAUSE"
"""Variable with the seconds that a worker waits for each flight."""

INPUTS_VARIABLE = "HEADWATER_DEMO_INPUTS"
"""Variable with the directory of the pipeline's static tables."""

CLAIM_AFTER_SECONDS = 5
"""Long enough for a live worker on a busy machine, short enough for a demo."""

APP = "headwater.demo.ops:app"
"""The app that ``headwater work`` runs."""

PAUSED_CONCURRENCY = 8
"""How many flights a worker handles at a time when it waits for each."""

SLOW_SIGNAL = signal.SIGUSR1
SLOW_SECONDS = 1.0
"""After `SLOW_SIGNAL` a worker waits this long for each flight, so that its buffer fills."""
