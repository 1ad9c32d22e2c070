"""Logs handlers that run too long (over their ``timeout``, or ten times their usual duration), and detects when
all of them hang.

Rule. A consumer hangs if no slot is free, and no handler has begun or ended for its ``timeout`` and a second more, or
      a minute more with pool processes. Without a timeout: for ten times the usual duration and at least a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from traceback import FrameSummary

from headwater.common.stacks import compact, full
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.owned import Owned
from headwater.worker.store.clocks import Timer, Timers, call_upkeep

log = logging.getLogger("headwater.worker")

LOOK_SECONDS = 1.0
"""Interval at which running handlers are checked, and the minimum age that is reported, in seconds."""

TIMES_USUAL = 10
LEAST_SAMPLES = 10
"""Number of handlers that must have returned before their average duration counts as usual."""

HUNG_SECONDS = 60.0
"""Minimum time after which a consumer without a ``timeout`` counts as hanging, in seconds."""

WEIGHT = 0.1
"""The weight of the last duration in the moving average."""


class SlowHandlers:
    """Checks the running handlers of one consumer.

    A slow handler is reported once, and again each time its age has doubled. ``stack`` returns a handler's stack.
    """

    def __init__(
        self,
        consumer: Consumer,
        *,
        clock: Timers,
        stack: Callable[[Owned], Sequence[FrameSummary]],
    ) -> None:
        self._consumer = consumer
        self._clock = clock
        self._stack = stack
        self._ended_at = 0.0
        self._said_hung = False
        self.last: Owned | None = None
        """The entry whose handler ended last."""
        self._running: dict[Owned, float] = {}
        """Entry → the age at which its handler is reported next; 0 for the first time."""
        self._timer: Timer | None = None
        self._samples = 0
        self._usual = 0.0
        self._returned = 0
        self._took = 0.0
        """Total duration in seconds of the handlers that have returned since the last check."""

    def began(self, owned: Owned) -> None:
        """Record that the handler begins to run."""
        owned.began = self._clock.monotonic()
        self._running[owned] = 0.0
        if self._timer is None:
            self._timer = call_upkeep(self._clock, LOOK_SECONDS, self._look)

    def ended(self, owned: Owned, *, returned: bool) -> None:
        """Record that the handler has ended. Only handlers that returned count for the usual duration."""
        self._running.pop(owned, None)
        self._ended_at = now = self._clock.monotonic()
        self.last = owned
        if returned:
            self._returned += 1
            self._took += now - owned.began

    def usual(self) -> float | None:
        """Return the usual run time of a handler in seconds; None while none has returned."""
        self._learn()
        return self._usual if self._samples else None

    def lately(self) -> list[Owned]:
        """Return a list with the entry whose handler ended last, if that was within the last second."""
        recent = self._clock.monotonic() - self._ended_at < LOOK_SECONDS
        return [self.last] if recent and self.last is not None else []

    def busy_since(self) -> float | None:
        """Return the monotonic time since which no handler has begun or ended; None if a slot is free."""
        if len(self._running) < self._consumer.concurrency:
            return None
        return max(self._ended_at, *(owned.began for owned in self._running), 0.0)

    def hung(self) -> str:
        """Return a sentence that says where the oldest handler hangs; empty while the consumer works."""
        since = self.busy_since()
        if since is None:
            return ""
        self._learn()
        now = self._clock.monotonic()
        quiet = now - since
        if quiet <= self._patience():
            return ""
        oldest = self._oldest()
        return (
            f"every slot is busy and no handler has ended for {quiet:.0f} s; the oldest, {self._consumer.name} "
            f"({oldest.id.decode()} of {self._consumer.stream.name}), has run for {now - oldest.began:.0f} s, at "
            f"{compact(self._stack(oldest))}"
        )

    def _oldest(self) -> Owned:
        return min(self._running, key=lambda owned: owned.began)

    def _patience(self) -> float:
        """Return the seconds without an ended handler after which the consumer hangs."""
        if self._consumer.timeout_ms is not None:
            # Time for a handler to end after its cancellation, or for a pool process to start.
            more = HUNG_SECONDS if self._consumer.isolated else LOOK_SECONDS
            return self._consumer.timeout_ms / 1000 + more
        return max(HUNG_SECONDS, TIMES_USUAL * self._usual)

    def _say_hung(self) -> None:
        hung = self.hung()
        if hung and not self._said_hung:
            log.error("hung: %s\n%s", hung, full(self._stack(self._oldest())))
        elif self._said_hung and not hung:
            log.warning("%s works again", self._consumer.name)
        self._said_hung = bool(hung)

    def close(self) -> None:
        """Stop checking."""
        self._running.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._running:
            return
        self._timer = call_upkeep(self._clock, LOOK_SECONDS, self._look)
        self._learn()
        self._say_hung()
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
        """Update the usual duration with the handlers that have returned since the last check."""
        if self._returned:
            self._samples += self._returned
            weight = max(1 - (1 - WEIGHT) ** self._returned, self._returned / self._samples)
            self._usual += weight * (self._took / self._returned - self._usual)
            self._returned, self._took = 0, 0.0

    def _limit(self) -> tuple[float | None, str]:
        """Return the age in seconds at which a handler is reported, and the reason for the log."""
        if self._consumer.timeout_ms is not None and not self._consumer.isolated:
            timeout = self._consumer.timeout_ms / 1000
            return timeout, f"longer than its timeout of {timeout:g} s: it ignores its cancellation"
        if self._samples < LEAST_SAMPLES:
            return None, ""
        limit = max(LOOK_SECONDS, TIMES_USUAL * self._usual)
        return limit, f"more than {TIMES_USUAL} times the usual {self._usual:.3g} s"
