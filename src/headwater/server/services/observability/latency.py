"""Latency: events that delayed the server, and the durations of commands.

`LatencyMonitor` records events that took ``threshold_ms`` or longer (LATENCY LATEST and others).
`Histogram` is the distribution of a command's durations (LATENCY HISTOGRAM, INFO latencystats).
The bounds are Redis's (latency.h): 160 samples per event, one per second.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable

MAX_SAMPLES = 160

COMMAND = "command"
FAST_COMMAND = "fast-command"
"""Event: a command that is flagged as fast was slow."""
FSYNC_ALWAYS = "aof-fsync-always"
WRITE = "aof-write-alone"
"""Redis's names of the two events in which writing the journal takes long."""
EXPIRE_CYCLE = "expire-cycle"
COLLECTION = "gc"
"""Event: a run of Python's cyclic garbage collector. Redis does not have this event."""

_MANTISSA_BITS = 6
"""Number of leading bits of a duration that are retained: a precision of 3 %, two significant digits as in
Redis."""


class EventSeries:
    """The samples of one event, (Unix seconds, ms), oldest first, and the overall maximum."""

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque(maxlen=MAX_SAMPLES)
        self.max_ms = 0

    def add(self, time: int, ms: int) -> None:
        """Add a sample. Of two in the same second the longer one is retained."""
        self.max_ms = max(self.max_ms, ms)
        if self.samples and self.samples[-1][0] == time:
            self.samples[-1] = (time, max(ms, self.samples[-1][1]))
        else:
            self.samples.append((time, ms))


class LatencyMonitor:
    """Latency events by name.

    >>> monitor = LatencyMonitor()
    >>> monitor.threshold_ms = 10
    >>> monitor.add("command", time=100, ms=20)
    >>> monitor.events["command"].max_ms
    20
    """

    def __init__(self) -> None:
        self.threshold_ms = 0
        """Minimum duration of an event that is recorded, in ms; 0 records nothing."""
        self.events: dict[str, EventSeries] = {}

    def add(self, event: str, *, time: int, ms: int) -> None:
        """Record an event that took ``ms``, if that reaches the threshold."""
        if self.threshold_ms and ms >= self.threshold_ms:
            self.events.setdefault(event, EventSeries()).add(time, ms)

    def reset(self, names: list[str]) -> int:
        """Remove these events, or all if ``names`` is empty. Return the number of removed ones."""
        gone = [name for name in names or list(self.events) if name in self.events]
        for name in dict.fromkeys(gone):
            del self.events[name]
        return len(dict.fromkeys(gone))


class Collections:
    """Statistics of Python's cyclic garbage collector since the start or CONFIG RESETSTAT. Only a
    server counts (`headwater.server.services.garbage_collection`); in an embedded store all values
    are 0."""

    def __init__(self) -> None:
        self.collect_all: Callable[[], object] = gc.collect
        """Function that runs a full collection now (MEMORY PURGE)."""
        self.reset()

    def reset(self) -> None:
        self.count = self.full = self.collected = self.total_ns = self.longest_ns = 0

    def add(self, took_ns: int, collected: int) -> None:
        """Count a collection that freed ``collected`` objects."""
        self.count += 1
        self.collected += collected
        self.total_ns += took_ns
        self.longest_ns = max(self.longest_ns, took_ns)


class Histogram:
    """Durations in nanoseconds, in buckets that are about 3 % wide.

    >>> histogram = Histogram()
    >>> for microseconds in (1, 2, 1000):
    ...     histogram.add(microseconds * 1000)
    >>> histogram.powers_of_two()
    [(1, 1), (2, 2), (1024, 3)]
    """

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        """Counts by the largest duration of their bucket."""
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        shift = max(0, nanoseconds.bit_length() - _MANTISSA_BITS)
        top = ((nanoseconds >> shift) + 1 << shift) - 1
        self.buckets[top] = self.buckets.get(top, 0) + 1
        self.count += 1

    def percentile_us(self, percent: float) -> float:
        """Return the duration in microseconds that ``percent`` of all durations do not exceed."""
        wanted = max(1, round(self.count * percent / 100))
        passed = 0
        for top in sorted(self.buckets):
            passed += self.buckets[top]
            if passed >= wanted:
                return top / 1000
        return 0.0

    def powers_of_two(self) -> list[tuple[int, int]]:
        """Return (2**n microseconds, number of durations up to that), without empty steps."""
        found: dict[int, int] = {}
        for top in sorted(self.buckets):
            microseconds = max(1, top // 1000)
            edge = 1 << (microseconds - 1).bit_length()
            found[edge] = found.get(edge, 0) + self.buckets[top]
        passed, steps = 0, []
        for edge, count in found.items():
            passed += count
            steps.append((edge, passed))
        return steps
