"""What held the server up: delays by event, and how long commands took.

`LatencyMonitor` keeps events that took ``threshold_ms`` or longer (LATENCY LATEST and its kin);
`Histogram` is the distribution of one command's durations (LATENCY HISTOGRAM, INFO latencystats).
Bounds are Redis's (latency.h): 160 samples an event, one a second.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable

MAX_SAMPLES = 160

COMMAND = "command"
FAST_COMMAND = "fast-command"
"""A command whose row says that it is fast was not."""
FSYNC_ALWAYS = "aof-fsync-always"
WRITE = "aof-write-alone"
"""The two ways in which writing the journal can take long, by their names in Redis."""
EXPIRE_CYCLE = "expire-cycle"
COLLECTION = "gc"
"""A collection of Python's cyclic collector. Redis has no such event."""

_MANTISSA_BITS = 6
"""Durations are kept with so many leading bits: within 3 %, two significant digits as in Redis."""


class EventSeries:
    """The delays of one event: (Unix seconds, ms), oldest first, and the longest there ever was."""

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque(maxlen=MAX_SAMPLES)
        self.max_ms = 0

    def add(self, time: int, ms: int) -> None:
        """Of two in the same second the longer is kept."""
        self.max_ms = max(self.max_ms, ms)
        if self.samples and self.samples[-1][0] == time:
            self.samples[-1] = (time, max(ms, self.samples[-1][1]))
        else:
            self.samples.append((time, ms))


class LatencyMonitor:
    """Events by name.

    >>> monitor = LatencyMonitor()
    >>> monitor.threshold_ms = 10
    >>> monitor.add("command", time=100, ms=20)
    >>> monitor.events["command"].max_ms
    20
    """

    def __init__(self) -> None:
        self.threshold_ms = 0
        """0: nothing is kept."""
        self.events: dict[str, EventSeries] = {}

    def add(self, event: str, *, time: int, ms: int) -> None:
        """An event that took ``ms``, if that is long enough."""
        if self.threshold_ms and ms >= self.threshold_ms:
            self.events.setdefault(event, EventSeries()).add(time, ms)

    def reset(self, names: list[str]) -> int:
        """Forget these events (all, when none is named); how many there were."""
        gone = [name for name in names or list(self.events) if name in self.events]
        for name in dict.fromkeys(gone):
            del self.events[name]
        return len(dict.fromkeys(gone))


class Collections:
    """What Python's cyclic collector did since the start or CONFIG RESETSTAT. A server counts
    (`headwater.server.services.garbage_collection`); an embedded store leaves all figures at 0."""

    def __init__(self) -> None:
        self.collect_all: Callable[[], object] = gc.collect
        """Collects everything, now (MEMORY PURGE)."""
        self.reset()

    def reset(self) -> None:
        self.count = self.full = self.collected = self.total_ns = self.longest_ns = 0

    def add(self, took_ns: int, collected: int) -> None:
        """A collection has ended that freed so many objects."""
        self.count += 1
        self.collected += collected
        self.total_ns += took_ns
        self.longest_ns = max(self.longest_ns, took_ns)


class Histogram:
    """Durations in nanoseconds, in buckets a thirtieth wide.

    >>> histogram = Histogram()
    >>> for microseconds in (1, 2, 1000):
    ...     histogram.add(microseconds * 1000)
    >>> histogram.powers_of_two()
    [(1, 1), (2, 2), (1024, 3)]
    """

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        """Durations by the greatest one that falls into the same bucket."""
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        shift = max(0, nanoseconds.bit_length() - _MANTISSA_BITS)
        top = ((nanoseconds >> shift) + 1 << shift) - 1
        self.buckets[top] = self.buckets.get(top, 0) + 1
        self.count += 1

    def percentile_us(self, percent: float) -> float:
        """The duration that ``percent`` of all do not exceed, in microseconds."""
        wanted = max(1, round(self.count * percent / 100))
        passed = 0
        for top in sorted(self.buckets):
            passed += self.buckets[top]
            if passed >= wanted:
                return top / 1000
        return 0.0

    def powers_of_two(self) -> list[tuple[int, int]]:
        """(2**n microseconds, how many took at most that), without steps where nothing was."""
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
