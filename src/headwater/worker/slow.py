"""Logs handlers that run too long: over their ``timeout``, or ten times their usual duration."""

from __future__ import annotations

import logging

from headwater.worker.clocks import Timer, Timers
from headwater.worker.declaration import Consumer
from headwater.worker.owned import Owned

log = logging.getLogger("headwater.worker")

LOOK_SECONDS = 1.0
"""How often running handlers are checked, and the least age that is reported."""

TIMES_USUAL = 10
LEAST_SAMPLES = 10
"""How many handlers must have returned before their average duration counts as usual."""

WEIGHT = 0.1
"""The weight of the last duration in the moving average."""


class SlowHandlers:
    """Checks one consumer's running handlers, while there are any.

    A slow handler is reported once, and again each time its age has doubled.
    """

    def __init__(self, consumer: Consumer, *, clock: Timers) -> None:
        self._consumer = consumer
        self._clock = clock
        self._running: dict[Owned, float] = {}
        """Entry → the age at which its handler is reported next; 0 for the first time."""
        self._timer: Timer | None = None
        self._samples = 0
        self._usual = 0.0
        self._returned = 0
        self._took = 0.0
        """Since the last check, ``_returned`` handlers have returned; they took ``_took`` seconds together."""

    def began(self, owned: Owned) -> None:
        """Record that the handler begins to run."""
        owned.began = self._clock.monotonic()
        self._running[owned] = 0.0
        if self._timer is None:
            self._timer = self._clock.call_later(LOOK_SECONDS, self._look)

    def ended(self, owned: Owned, *, returned: bool) -> None:
        """Record that the handler has ended. The usual duration is that of handlers that returned."""
        self._running.pop(owned, None)
        if returned:
            self._returned += 1
            self._took += self._clock.monotonic() - owned.began

    def usual(self) -> float | None:
        """Return how many seconds a handler usually runs; None while none has returned."""
        self._learn()
        return self._usual if self._samples else None

    def close(self) -> None:
        """Stop checking."""
        self._running.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._running:
            return
        self._timer = self._clock.call_later(LOOK_SECONDS, self._look)
        self._learn()
        limit, why = self._limit()
        if limit is None:
            return
        now = self._clock.monotonic()
        for owned, again in self._running.items():
            age = now - owned.began
            if age > limit and age >= again:
                self._running[owned] = 2 * age
                log.warning(
                    "%s has been handling %s of %s (delivery %d) for %.1f s, %s",
                    self._consumer.name,
                    owned.delivery.id,
                    owned.delivery.stream,
                    owned.count,
                    age,
                    why,
                )

    def _learn(self) -> None:
        """Update the usual duration by the handlers that returned since the last check."""
        if self._returned:
            self._samples += self._returned
            weight = max(1 - (1 - WEIGHT) ** self._returned, self._returned / self._samples)
            self._usual += weight * (self._took / self._returned - self._usual)
            self._returned, self._took = 0, 0.0

    def _limit(self) -> tuple[float | None, str]:
        """Return the age in seconds from which a handler is reported, and the reason for the log."""
        if self._consumer.timeout_ms is not None:
            timeout = self._consumer.timeout_ms / 1000
            return timeout, f"longer than its timeout of {timeout:g} s: it ignores its cancellation"
        if self._samples < LEAST_SAMPLES:
            return None, ""
        limit = max(LOOK_SECONDS, TIMES_USUAL * self._usual)
        return limit, f"more than {TIMES_USUAL} times the usual {self._usual:.3g} s"
