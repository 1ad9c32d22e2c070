"""Publishes the flights, a few of them spoiled, and remembers what must come out at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwater.demo.data import Flight, Key, key
from headwater.demo.spoil import Kind, plan, spoil
from headwater.messages import DATA_FIELD, codec_for

if TYPE_CHECKING:
    from redis import Redis

STREAM = "flights"
ENRICHED = "flights.enriched"
GROUP = "ops"

CHUNK = 500
"""Flights in one pipeline: enough that the round trip costs nothing, few enough that progress
moves."""


class Published(NamedTuple):
    """What was sent: what the reconciliation measures everything else by."""

    flights: int
    spoiled: Counter[Kind]
    unspoiled: set[Key]
    """The keys of the flights that must be enriched."""


def publish(
    client: Redis,
    flights: Sequence[Flight],
    *,
    seed: int,
    advance: Callable[[int], None] = lambda _count: None,
) -> Published:
    """XADD every flight to `STREAM` in order, codec json, spoiling those that the seed chooses.

    ``advance`` is told how many more the server has answered for. Errors are the client's.
    """
    spoiled = plan(len(flights), seed=seed)
    codec = codec_for(Flight, "json")
    for start in range(0, len(flights), CHUNK):
        chunk = flights[start : start + CHUNK]
        pipeline = client.pipeline(transaction=False)
        for place, flight in enumerate(chunk, start):
            kind = spoiled.get(place)
            if kind is None:
                pipeline.xadd(STREAM, dict(codec.encode(flight)))
            else:
                pipeline.xadd(STREAM, {DATA_FIELD: spoil(flight, kind, seed=seed)})
        pipeline.execute()
        advance(len(chunk))
    unspoiled = {key(flight) for place, flight in enumerate(flights) if place not in spoiled}
    return Published(len(flights), Counter(spoiled.values()), unspoiled)
