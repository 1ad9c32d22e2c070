"""Publishes the flights, a few of them corrupted, and records the expected result."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple, Self

from headwater.demo.corrupt import Corruption, corrupt, plan
from headwater.demo.data import Flight, Key, key
from headwater.demo.names import STREAM
from headwater.messages import codec_for
from headwater.messages.codecs import DATA_FIELD

if TYPE_CHECKING:
    from redis import Redis

CHUNK = 500
"""Number of flights in one pipeline: enough to make the round trip negligible, few enough to show progress."""


class Published(NamedTuple):
    """The published flights, with which the reconciliation compares all other counts."""

    flights: int
    corrupted: Counter[Corruption]
    valid: set[Key]
    """The keys of the flights that must be enriched."""


def publish(
    client: Redis,
    flights: Sequence[Flight],
    *,
    seed: int,
    advance: Callable[[int], None] = lambda _count: None,
) -> Published:
    """Add every flight to `STREAM` in order, with the codec json, corrupting those that ``seed`` selects.

    ``advance`` is called with the number of flights that the server has acknowledged since the last
    call. Raises the client's errors.
    """
    corrupted = plan(len(flights), seed=seed)
    codec = codec_for(Flight, "json")
    for start in range(0, len(flights), CHUNK):
        chunk = flights[start : start + CHUNK]
        pipeline = client.pipeline(transaction=False)
        for place, flight in enumerate(chunk, start):
            kind = corrupted.get(place)
            if kind is None:
                pipeline.xadd(STREAM, dict(codec.encode(flight)))
            else:
                pipeline.xadd(STREAM, {DATA_FIELD: corrupt(flight, kind, seed=seed)})
        pipeline.execute()
        advance(len(chunk))
    valid = {key(flight) for place, flight in enumerate(flights) if place not in corrupted}
    return Published(len(flights), Counter(corrupted.values()), valid)


class _Stopped(Exception):
    """Publishing was stopped."""


class Publishing:
    """Runs `publish` in a thread, inside a ``with`` block; leaving the block stops it."""

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
        """True if all flights are published. Raises the error that stopped publishing."""
        if not self._done.done():
            return False
        self._done.result()
        return True

    def result(self) -> Published:
        """Wait until all flights are published, and return them. Raises the error that stopped publishing."""
        return self._done.result()

    def _run(self, client: Redis, flights: Sequence[Flight], seed: int) -> None:
        def advance(_count: int) -> None:
            if self._stop.is_set():
                raise _Stopped

        try:
            self._done.set_result(publish(client, flights, seed=seed, advance=advance))
        except BaseException as problem:
            self._done.set_exception(problem)
