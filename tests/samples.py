"""How much of every long campaign `make slice` runs. ``SLICE_SCALE=4 make slice`` runs four times as much.

Each sample is as small as it can be while all planted faults are found, because it is run for every change.
"""

from __future__ import annotations

import os
from typing import Final

SCALE: Final = float(os.environ.get("SLICE_SCALE", "1"))


def sampled(number: int) -> int:
    """Return how many of ``number`` histories, kills, rows or seconds this run has: a multiple by `SCALE`."""
    return max(1, round(number * SCALE))


def every(stride: int) -> int:
    """Return which one of many steps is tested: every ``stride``-th, or more of them by `SCALE`."""
    return max(1, round(stride / SCALE))
