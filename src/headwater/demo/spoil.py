"""One flight in a thousand is spoiled on purpose, always the same ones for the same seed.

Each kind must end in the dead-letter stream for its own reason, which is what the reconciliation
counts; a reason that fits no kind is counted as ``other`` and makes it fail.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Any

import msgspec

from headwater.demo.data import Flight

SHARE = 0.001


class Corruption(StrEnum):
    """What is wrong with a spoiled flight."""

    BROKEN_JSON = "broken JSON"
    IMPOSSIBLE_TIME = "impossible time"
    MISSING_FIELD = "missing field"
    UNKNOWN_CARRIER = "unknown carrier"


REASONS = {
    Corruption.BROKEN_JSON: "is not a JSON document",
    Corruption.IMPOSSIBLE_TIME: "impossible time",
    Corruption.MISSING_FIELD: "missing required field",
    Corruption.UNKNOWN_CARRIER: "unknown carrier",
}
"""Words of a dead letter's ``hw.error`` that tell its kind."""

REQUIRED = ("carrier", "flight", "origin", "dest", "day", "time_hour", "sched_dep_time", "distance")

UNKNOWN_CARRIERS = ("QX", "ZZ", "X9", "??")
"""No carrier of 2013 had these codes."""


def plan(count: int, *, seed: int) -> dict[int, Corruption]:
    """Which of ``count`` flights are spoiled, by their place, and how.

    One in a thousand, at least one of each kind as long as there are that many flights.
    """
    wanted = min(count, max(round(count * SHARE), len(Corruption)))
    chance = random.Random(seed)
    places = chance.sample(range(count), wanted)
    kinds = [*Corruption]
    return {place: kinds[number % len(kinds)] for number, place in enumerate(places)}


def spoil(flight: Flight, kind: Corruption, *, seed: int) -> bytes:
    """The JSON document of ``flight``, spoiled in exactly one way."""
    chance = random.Random(f"{seed} {flight}")
    if kind is Corruption.BROKEN_JSON:
        whole = msgspec.json.encode(flight)
        return whole[: chance.randrange(1, len(whole))]  # no beginning of an object is a document
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
    """The kind that a dead letter's ``hw.error`` tells of, ``other`` when it tells of none.

    >>> kind_of("headwater.worker.Dead: unknown carrier 'ZZ'")
    'unknown carrier'
    """
    for kind, words in REASONS.items():
        if words in error:
            return kind.value
    return "other"
