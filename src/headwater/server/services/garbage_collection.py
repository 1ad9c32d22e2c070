"""When Python's cyclic collector runs in a server, and how long it held the server up.

Reference counts free nearly everything; the collector looks for cycles among what is left, and a full
collection looks at every object of every key. It cannot be interrupted: a million streams take seconds.

    while starting     none; after the replay everything is frozen: no collection looks at it again
    while serving      young   after so many new objects (CPython's own counters), a millisecond at most
                       recent  all objects that are not frozen, after some young collections; what is
                               left is frozen when it became too much to look at in `RECENT_SECONDS`
                       full    frozen objects too, when requests will hardly meet it

Rule 1. Automatic collections are young ones. A recent or full one runs between turns, never within one.
Rule 2. A full collection runs at most every `FULL_INTERVAL_SECONDS`, and only when it is expected to
        take less than `SHORT_SECONDS`, or to meet fewer than `MEETINGS` requests at the rate of the last
        check: for a store of a million keys that is an idle time, for a small one any time.
Rule 3. A large store that is never idle makes no full collection. Frozen objects that die in a cycle
        wait for the idle time or for MEMORY PURGE. The cycles that the server itself makes of old
        objects (streams and groups, sessions and connections) are taken apart where they end.
Rule 4. Only the process of ``headwater serve`` does this. An embedded store leaves the collector of its
        host program alone, but for its replay (`headwater.collector`).

See docs/adr/0032-collector-pauses.md.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headwater.server.services.observability.latency import COLLECTION

if TYPE_CHECKING:
    from headwater.server.services.services import Services

YOUNG_OBJECTS = 2_000
"""New objects after which the youngest generation is collected."""

YOUNG_COLLECTIONS = 5
"""Collections of it after which the next older one is collected with it."""

RECENT_SECONDS = 0.004
"""How long a recent collection is to take: the number of young ones before it is adapted to that."""

MOST_STEPS = 64
"""Most collections of the second generation before a recent one, some 600,000 objects."""

CHECK_SECONDS = 10.0
"""How often it is looked whether a full collection may run."""

FULL_INTERVAL_SECONDS = 600.0
SHORT_SECONDS = 0.010
MEETINGS = 0.1

BLOCK_NS = 100.0
"""What a full collection takes for a block of memory, before the first one was measured."""

_NEVER = 2**31 - 1


class GarbageCollection:
    """The collector of this process while it serves ``services``.

    collection = GarbageCollection()
    collection.begin()               # before the replay
    collection.serve(services)       # after it, within a running loop of asyncio
    collection.end()                 # as it was found
    """

    def __init__(self, *, short_seconds: float = SHORT_SECONDS) -> None:
        self._short_seconds = short_seconds
        self._found: tuple[bool, tuple[int, int, int]] | None = None
        self._services: Services | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began_ns = 0
        self._steps = 0
        """Collections of the second generation since the last recent one."""
        self._most_steps = 1
        self._last_full = 0.0
        self._turns = 0
        self._idle_since_full = True
        """Nothing was asked since the last full collection: another would find nothing."""
        self._block_ns = BLOCK_NS

    def begin(self) -> None:
        """Switch automatic collections off: the store is about to be read."""
        self._found = (gc.isenabled(), gc.get_threshold())
        gc.disable()

    def serve(self, services: Services) -> None:
        """The store has been read: leave it out of all collections, and begin young ones."""
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
        """Restore the settings that were found. What is frozen stays so: the process is about to end, and
        Python's last collection need not look at it."""
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
        """Collect what is not frozen, and freeze what is left if that took long."""
        self._steps = 0
        took = _timed(gc.collect)
        if took > RECENT_SECONDS:
            self._most_steps = max(1, self._most_steps // 2)
        elif took < RECENT_SECONDS / 2:
            self._most_steps = min(MOST_STEPS, self._most_steps + 1)
        if took > RECENT_SECONDS / 2:
            gc.freeze()

    def collect_all(self) -> None:
        """Collect everything, frozen or not."""
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
        """Make a full collection if it is time and requests will hardly meet it; whether it was made.
        The node has run so many ``turns`` until ``now``, monotonic."""
        new, self._turns = turns - self._turns, turns
        self._idle_since_full &= not new
        if self._idle_since_full or now - self._last_full < FULL_INTERVAL_SECONDS:
            return False
        expected = sys.getallocatedblocks() * self._block_ns / 1e9
        if expected > self._short_seconds and expected * new / CHECK_SECONDS > MEETINGS:
            return False
        self.collect_all()
        return True

    def _each_check(self) -> None:
        assert self._loop is not None
        assert self._services is not None
        self._timer = self._loop.call_later(CHECK_SECONDS, self._each_check)
        self.check(self._loop.time(), self._services.records.turn)

    # --- what CPython says of each ---------------------------------------------------------------

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        """A collection begins or ends, in any thread and in the middle of anything."""
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
            # Not now: somebody may be walking through the events.
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
    """How many seconds a call takes."""
    began = perf_counter_ns()
    function()
    return (perf_counter_ns() - began) / 1e9
