"""Corrupts one flight in a thousand on purpose; the same seed selects the same flights.

Each kind of corruption has its own reason in the dead-letter stream, and the reconciliation counts these
reasons. A reason that matches no kind is counted as ``other`` and fails the reconciliation.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Any

import msgspec

from headwater.demo.data import Flight

SHARE = 0.001


class Corruption(StrEnum):
    """Kind of fault in a corrupted flight. Each corrupted flight has exactly one fault."""

    BROKEN_JSON = "broken JSON"
    IMPOSSIBLE_TIME = "impossible time"
    MISSING_FIELD = "missing field"
    UNKNOWN_CARRIER = "unknown carrier"


REASONS = {
    Corruption.BROKEN_JSON: "JSON document",
    Corruption.IMPOSSIBLE_TIME: "impossible time",
    Corruption.MISSING_FIELD: "missing required field",
    Corruption.UNKNOWN_CARRIER: "unknown carrier",
}
"""The words in a dead letter's ``hw.error`` that identify each kind."""

REQUIRED = ("carrier", "flight", "origin", "dest", "day", "time_hour", "sched_dep_time", "distance")

UNKNOWN_CARRIERS = ("QX", "ZZ", "X9", "??")
"""Codes that no carrier had in 2013."""


def plan(count: int, *, seed: int) -> dict[int, Corruption]:
    """Choose the flights to corrupt, of ``count`` flights: index of the flight → kind of corruption.

    One flight in a thousand is chosen, but at least one for each kind if there are enough flights.
    """
    wanted = min(count, max(round(count * SHARE), len(Corruption)))
    chance = random.Random(seed)
    places = chance.sample(range(count), wanted)
    kinds = [*Corruption]
    return {place: kinds[number % len(kinds)] for number, place in enumerate(places)}


def corrupt(flight: Flight, kind: Corruption, *, seed: int) -> bytes:
    """Return the JSON document of ``flight``, corrupted in exactly one way."""
    chance = random.Random(f"{seed} {flight}")
    if kind is Corruption.BROKEN_JSON:
        whole = msgspec.json.encode(flight)
        return whole[: chance.randrange(1, len(whole))]  # a proper prefix of an object is invalid
    fields: dict[str, Any] = msgspec.to_builtins(flight)
    if kind is Corruption.MISSING_FIELD:
        del fields[chance.choice(REQUIRED)]
    elif kind is Corruption.IMPOSSIBLE_TIME:
        fields["sched_dep_time"] = chance.randrange(25, 60) * 100 + chance.randrange(60)
    else:
        assert kind is Corruption.UNKNOWN_CARRIER
        fields["carrier"] = chance.choice(UNKNOWN_CARRIERS)
    return msgspec.json.encode(fields)


def kind_of(error: str) -> str:
    """Return the kind that a dead letter's ``hw.error`` identifies, or ``other``.

    >>> kind_of("headwater.worker.Dead: unknown carrier 'ZZ'")
    'unknown carrier'
    """
    for kind, words in REASONS.items():
        if words in error:
            return kind.value
    return "other"
