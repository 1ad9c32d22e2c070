"""Publishes the flights, a few of them spoiled, and remembers what must come out at the end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple, Self

from headwater.demo.data import Flight, Key, key
from headwater.demo.names import STREAM
from headwater.demo.spoil import Corruption, plan, spoil
from headwater.messages import DATA_FIELD, codec_for

if TYPE_CHECKING:
    from redis import Redis

CHUNK = 500
"""Flights in one pipeline: enough that the round trip costs nothing, few enough that progress
moves."""


class Published(NamedTuple):
    """What was sent: what the reconciliation measures everything else by."""

    flights: int
    spoiled: Counter[Corruption]
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


class _Stopped(Exception):
    """Whoever published was told to stop."""


class Publishing:
    """`publish` in a thread of its own, between enter and exit; leaving stops it where it is."""

    def __init__(self, client: Redis, flights: Sequence[Flight], *, seed: int) -> None:
        self._stop = threading.Event()
        self._done: Future[Published] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(client, flights, seed), name="demo-producer", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def ended(self) -> bool:
        """Whether it has published everything; raises what stopped it."""
        if not self._done.done():
            return False
        self._done.result()
        return True

    def result(self) -> Published:
        """What was published; raises what stopped it."""
        return self._done.result()

    def _run(self, client: Redis, flights: Sequence[Flight], seed: int) -> None:
        def advance(_count: int) -> None:
            if self._stop.is_set():
                raise _Stopped

        try:
            self._done.set_result(publish(client, flights, seed=seed, advance=advance))
        except BaseException as problem:
            self._done.set_exception(problem)
