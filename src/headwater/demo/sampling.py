"""Samples the store four times a second during the work, for the plots of the report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from headwater.demo.evidence import group_counts, pending_by_owner
from headwater.demo.names import ENRICHED, STREAM
from headwater.messages.keys import dead_letter_stream

if TYPE_CHECKING:
    from redis import Redis

INTERVAL_SECONDS = 0.25


class Sample(NamedTuple):
    """Counts in the store, ``seconds`` after the sampler began. ``unread`` is -1 if the server does not know it.
    ``owned`` is the number of pending entries by consumer; entries without an owner are counted only in
    ``pending``."""

    seconds: float
    published: int
    enriched: int
    dead: int
    pending: int
    unread: int
    owned: Mapping[str, int] = MappingProxyType({})


class Event(NamedTuple):
    """A signal that the demo sent to a process; the plots mark it. ``seconds`` counts from the sampler's start."""

    seconds: float
    what: str


class Sampler:
    """Takes a `Sample` every quarter of a second in a thread, inside a ``with`` block.

    ``seen`` is called with each sample, for the progress bars. An error ends the sampling and is stored in
    ``problem``; the demo itself continues.
    """

    def __init__(self, client: Redis, *, seen: Callable[[Sample], None] = lambda _: None) -> None:
        self._client = client
        self._seen = seen
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-sampler", daemon=True)
        self.samples: list[Sample] = []
        self.events: list[Event] = []
        self.problem: Exception | None = None

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def mark(self, what: str) -> None:
        """Record an event at the current time."""
        self.events.append(Event(self._seconds(), what))

    def take(self) -> Sample:
        """Return a sample of the store now."""
        there = bool(self._client.exists(STREAM))
        pending, unread = group_counts(self._client) if there else (0, 0)
        return Sample(
            self._seconds(),
            int(self._client.xlen(STREAM)),
            int(self._client.xlen(ENRICHED)),
            int(self._client.xlen(dead_letter_stream(STREAM))),
            pending,
            unread,
            pending_by_owner(self._client) if pending else {},
        )

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _run(self) -> None:
        try:
            while not self._ended.wait(INTERVAL_SECONDS):
                sample = self.take()
                self.samples.append(sample)
                self._seen(sample)
        except Exception as problem:  # the report then has shorter plots
            self.problem = problem
