"""Names and settings that the processes of the demo share."""

from __future__ import annotations

import signal

STREAM = "flights"
ENRICHED = "flights.enriched"
GROUP = "ops"

URL_VARIABLE = "HEADWATER_DEMO_URL"
"""Environment variable with the store's url, for the workers and the pipeline's file."""

PAUSE_VARIABLE = "HEADWATER_DEMO_PAUSE"
"""Environment variable with a worker's pause for each flight, in seconds."""

INPUTS_VARIABLE = "HEADWATER_DEMO_INPUTS"
"""Environment variable with the directory of the pipeline's static tables."""

CLAIM_AFTER_SECONDS = 5
"""``claim_after`` of the group: long enough for a live worker on a busy machine, short enough for a demo."""

APP = "headwater.demo.ops:app"
"""The app that ``headwater work`` runs."""

PAUSED_CONCURRENCY = 8
"""Number of flights that a worker handles at a time if `PAUSE_VARIABLE` sets a pause."""

SLOW_SIGNAL = signal.SIGUSR1
SLOW_SECONDS = 1.0
"""A worker's pause for each flight after `SLOW_SIGNAL`, in seconds, so that its buffer fills."""
