"""Looks at the store four times a second while the work goes on, for the plots of the report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from headwater.demo.evidence import group_counts
from headwater.demo.names import ENRICHED, STREAM
from headwater.messages import dead_letter_stream

if TYPE_CHECKING:
    from redis import Redis

INTERVAL_SECONDS = 0.25


class Sample(NamedTuple):
    """The store at one moment; ``seconds`` since the sampler began. ``unread`` is -1 where the
    server cannot tell."""

    seconds: float
    published: int
    enriched: int
    dead: int
    pending: int
    unread: int


class Event(NamedTuple):
    """Something that the demo did to a process, for the plots to mark."""

    seconds: float
    what: str


class Sampler:
    """Takes a `Sample` every quarter of a second in a thread of its own, between enter and exit.

    ``seen`` is given each, for the progress bars. An error of the client ends the sampling and is
    kept in ``problem``; the demo itself goes on.
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
        """Remember that something happened now."""
        self.events.append(Event(self._seconds(), what))

    def take(self) -> Sample:
        """Look at the store now."""
        pending, unread = group_counts(self._client) if self._client.exists(STREAM) else (0, 0)
        return Sample(
            self._seconds(),
            int(self._client.xlen(STREAM)),
            int(self._client.xlen(ENRICHED)),
            int(self._client.xlen(dead_letter_stream(STREAM))),
            pending,
            unread,
        )

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _run(self) -> None:
        try:
            while not self._ended.wait(INTERVAL_SECONDS):
                sample = self.take()
                self.samples.append(sample)
                self._seen(sample)
        except Exception as problem:  # the report then has a shorter plot
            self.problem = problem
