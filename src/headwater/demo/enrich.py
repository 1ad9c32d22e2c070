"""Validates a flight and adds its airline and delay class: a worker's task for each flight."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime

import msgspec

from headwater.demo.data import Flight

ON_TIME_MINUTES = 15
"""A departure with at least this delay is late. Precedent: the Bureau of Transportation Statistics."""

VERY_LATE_MINUTES = 60


class Invalid(Exception):
    """The flight has an impossible value; the message begins with the kind of fault."""


class Enriched(msgspec.Struct, frozen=True):
    """A flight with its airline and delay class, and the delivery from which it was made."""

    carrier: str
    airline: str
    flight: int
    origin: str
    dest: str
    day: date
    time_hour: datetime
    hour: int
    """The scheduled hour of departure on New York's clocks."""
    delay_class: str
    distance: int
    source_id: str
    """The id of the entry in ``flights``."""
    worker: str
    """The consumer that handled the entry."""
    deliveries: int
    """The entry's delivery count."""
    tailnum: str | None = None
    dep_delay: int | None = None
    arr_delay: int | None = None
    air_time: int | None = None


def enrich(
    flight: Flight, airlines: Mapping[str, str], *, source_id: str, worker: str, deliveries: int
) -> Enriched:
    """Return the flight with its airline and delay class. Raises `Invalid` if its carrier does not exist
    or one of its times is impossible."""
    airline = airlines.get(flight.carrier)
    if airline is None:
        raise Invalid(f"unknown carrier {flight.carrier!r}")
    for name in ("sched_dep_time", "sched_arr_time", "dep_time", "arr_time"):
        at = getattr(flight, name)
        if at is not None and not on_a_clock(at):
            raise Invalid(f"impossible time: {name} = {at}")
    return Enriched(
        carrier=flight.carrier,
        airline=airline,
        flight=flight.flight,
        origin=flight.origin,
        dest=flight.dest,
        day=flight.day,
        time_hour=flight.time_hour,
        hour=flight.sched_dep_time // 100,
        delay_class=delay_class(flight.dep_delay),
        distance=flight.distance,
        source_id=source_id,
        worker=worker,
        deliveries=deliveries,
        tailnum=flight.tailnum,
        dep_delay=flight.dep_delay,
        arr_delay=flight.arr_delay,
        air_time=flight.air_time,
    )


def on_a_clock(at: int) -> bool:
    """Return whether ``at`` is a valid time hhmm; midnight is 0 or 2400.

    >>> [on_a_clock(at) for at in (0, 517, 2400, 1260, 2401)]
    [True, True, True, False, False]
    """
    return 0 <= at <= 2400 and at % 100 < 60


def delay_class(dep_delay: int | None) -> str:
    """Return the class of a departure delay in minutes; None means a cancelled flight.

    >>> [delay_class(minutes) for minutes in (None, -3, 14, 15, 60)]
    ['cancelled', 'early', 'on time', 'late', 'very late']
    """
    if dep_delay is None:
        return "cancelled"
    if dep_delay < 0:
        return "early"
    if dep_delay < ON_TIME_MINUTES:
        return "on time"
    return "late" if dep_delay < VERY_LATE_MINUTES else "very late"
