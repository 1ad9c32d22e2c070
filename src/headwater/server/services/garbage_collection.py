"""Schedules Python's cyclic garbage collector in a server, and measures the delays that it causes.

Reference counting frees nearly everything; the collector frees reference cycles. A full collection visits
every object of every key. It cannot be interrupted: with a million streams it takes seconds.

    starting    none; after the replay all objects are frozen, so that later collections skip them
    serving     young   after a number of new objects (CPython's own counters), a millisecond at most
                recent  all objects that are not frozen, after some young collections; those that remain
                        are then frozen if that took longer than half of `RECENT_SECONDS`
                full    also frozen objects, at a time when few requests would be delayed

Rule 1. Automatic collections are young ones. Recent and full ones run between turns; only MEMORY PURGE
        makes a full one within a turn.
Rule 2. A full collection runs at most every `FULL_INTERVAL_SECONDS`, and only if it is expected to
        take less than `SHORT_SECONDS`, or to delay fewer than `MAX_DELAYED_REQUESTS` requests at
        the rate since the last check: with a million keys that means when the store is idle, with
        few keys any time.
Rule 3. A large store that is never idle makes no full collection. Frozen objects that become part
        of a garbage cycle remain until the store is idle or MEMORY PURGE runs. The server itself
        breaks the cycles of its long-lived objects (streams and groups, sessions and connections)
        when they end.
Rule 4. Only the process of ``headwater serve`` uses this module. An embedded store does not change
        the collector of its host program, except during its replay (`headwater.common.collector`).

See docs/adr/0032-collector-pauses.md.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from headwater.server.services.observability.latency import COLLECTION
from headwater.server.services.services import Services

YOUNG_OBJECTS = 2_000
"""Number of new objects after which a young collection runs."""

YOUNG_COLLECTIONS = 5
"""Number of young collections after which one also includes the second generation."""

RECENT_SECONDS = 0.004
"""Target duration of a recent collection, in seconds. The number of preceding young ones is adapted to it."""

MOST_STEPS = 64
"""Maximum number of second-generation collections between two recent collections: some 600,000 new objects."""

CHECK_SECONDS = 10.0
"""Interval of the checks whether a full collection may run, in seconds."""

FULL_INTERVAL_SECONDS = 600.0
SHORT_SECONDS = 0.010
MAX_DELAYED_REQUESTS = 0.1

BLOCK_NS = 100.0
"""Estimated duration of a full collection per block of memory, in ns, until one has been measured."""

_NEVER = 2**31 - 1


class GarbageCollection:
    """The garbage collector of this process while it serves ``services``.

    collection = GarbageCollection()
    collection.begin()               # before the replay
    collection.serve(services)       # after it, within a running asyncio loop
    collection.end()                 # restores the settings
    """

    def __init__(self, *, short_seconds: float = SHORT_SECONDS) -> None:
        self._short_seconds = short_seconds
        self._found: tuple[bool, tuple[int, int, int]] | None = None
        self._services: Services | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began_ns = 0
        self._steps = 0
        """Number of collections of the second generation since the last recent one."""
        self._most_steps = 1
        self._last_full = 0.0
        self._turns = 0
        self._idle_since_full = True
        """True if no turn ran since the last full collection, so another one would find nothing."""
        self._block_ns = BLOCK_NS

    def begin(self) -> None:
        """Disable automatic collections before the store is read."""
        self._found = (gc.isenabled(), gc.get_threshold())
        gc.disable()

    def serve(self, services: Services) -> None:
        """Freeze the objects of the store that has been read, and enable young collections."""
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._last_full, self._turns = self._loop.time(), services.records.turn
        services.observer.collections.collect_all = self.collect_all
        gc.freeze()
        gc.callbacks.append(self._on_collection)
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, _NEVER)
        gc.enable()
        self._timer = self._loop.call_later(CHECK_SECONDS, self._each_check)

    def end(self) -> None:
        """Restore the settings. Frozen objects remain frozen: the process is about to end, and
        Python's last collection need not visit them."""
        if self._timer is not None:
            self._timer.cancel()
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)
        if self._services is not None:
            self._services.observer.collections.collect_all = gc.collect
        if self._found is not None:
            enabled, thresholds = self._found
            gc.set_threshold(*thresholds)
            (gc.enable if enabled else gc.disable)()

    # --- collections ----------------------------------------------------------------------------

    def collect_recent(self) -> None:
        """Collect objects that are not frozen. Freeze the remaining ones if that took long."""
        self._steps = 0
        took = _timed(gc.collect)
        if took > RECENT_SECONDS:
            self._most_steps = max(1, self._most_steps // 2)
        elif took < RECENT_SECONDS / 2:
            self._most_steps = min(MOST_STEPS, self._most_steps + 1)
        if took > RECENT_SECONDS / 2:
            gc.freeze()

    def collect_all(self) -> None:
        """Collect all objects, frozen or not."""
        assert self._loop is not None
        assert self._services is not None
        blocks = sys.getallocatedblocks()
        gc.unfreeze()
        took = _timed(gc.collect)
        gc.freeze()
        self._block_ns = took * 1e9 / max(1, blocks)
        self._last_full, self._idle_since_full, self._steps = self._loop.time(), True, 0
        self._services.observer.collections.full += 1

    def check(self, now: float, turns: int) -> bool:
        """Run a full collection if it is due and delays few requests (rule 2). Return whether it
        ran. ``now`` is monotonic; the node has run ``turns`` turns so far."""
        new, self._turns = turns - self._turns, turns
        self._idle_since_full &= not new
        if self._idle_since_full or now - self._last_full < FULL_INTERVAL_SECONDS:
            return False
        expected = sys.getallocatedblocks() * self._block_ns / 1e9
        if expected > self._short_seconds and expected * new / CHECK_SECONDS > MAX_DELAYED_REQUESTS:
            return False
        self.collect_all()
        return True

    def _each_check(self) -> None:
        assert self._loop is not None
        assert self._services is not None
        self._timer = self._loop.call_later(CHECK_SECONDS, self._each_check)
        self.check(self._loop.time(), self._services.records.turn)

    # --- CPython's callback ----------------------------------------------------------------------

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        """Measure a collection. Called when it begins or ends, in any thread and in the middle of any code."""
        if phase == "start":
            self._began_ns = perf_counter_ns()
            return
        took_ns = perf_counter_ns() - self._began_ns
        services, loop = self._services, self._loop
        assert services is not None
        assert loop is not None
        services.observer.collections.add(took_ns, info["collected"])
        threshold_ms = services.observer.latency.threshold_ms
        if threshold_ms and took_ns >= threshold_ms * 1_000_000:
            # It is reported later, because the interrupted code may be iterating over the latency events.
            self._soon(self._report, took_ns // 1_000_000)
        if info["generation"] == 1:
            self._steps += 1
            if self._steps == self._most_steps:
                self._soon(self.collect_recent)

    def _soon(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _report(self, ms: int) -> None:
        assert self._services is not None
        services = self._services
        services.observer.latency.add(COLLECTION, time=services.times.wall_now() // 1000, ms=ms)


def _timed(function: Callable[[], object]) -> float:
    """Return the duration of a call, in seconds."""
    began = perf_counter_ns()
    function()
    return (perf_counter_ns() - began) / 1e9
