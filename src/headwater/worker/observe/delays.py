"""Measures in a thread how late this process runs, and finds the cause. Not every timeout is the store's fault.

    the thread wakes late ──▶ the process was stopped, or a handler held the interpreter's lock (GIL)
    the thread wakes on time, but the event loop does not answer ──▶ a handler blocks the event loop

Rule 1. A thread that waits for the lock wakes every few milliseconds (CPython's switch interval), which the kernel
        counts as context switches of the thread. A thread of a stopped process has no context switches.
Rule 2. A pause is logged once, with its cause. A command that times out during a pause or just after
        it does not count as an outage of the store (`Availability`).
"""

from __future__ import annotations

import asyncio
import logging
import resource
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from headwater.common.stacks import compact, context_switches, frames_of_thread
from headwater.worker.declare.owned import Owned

log = logging.getLogger("headwater.worker")

TICK_SECONDS = 0.25
LATE_SECONDS = 1.0
"""Minimum pause that is reported, in seconds. No deadline of a worker is shorter."""

AFTERMATH_SECONDS = 1.0
"""Seconds after a pause within which the timeouts that it caused arrive."""

SWITCHES_PER_SECOND = 20.0
"""Context switches per second below which a thread counts as stopped. A thread that waits for the lock has 200."""

NAMED = 3

Running = Sequence[tuple[str, Owned]]
"""The running handlers, each with its name and its entry."""


class _Usage(NamedTuple):
    switches: int
    """Context switches of the measuring thread, or of the process if the system does not report threads."""
    suspended: float
    """Seconds for which the machine was suspended since its start. The monotonic clock does not count them."""


def _usage(thread: int | None) -> _Usage:
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    suspended = 0.0 if boot is None else time.clock_gettime(boot) - time.monotonic()
    return _Usage(_switches(thread), suspended)


def _switches(thread: int | None) -> int:
    """Return the context switches of a thread of this process so far."""
    try:
        return context_switches(Path(f"/proc/self/task/{thread}"))
    except OSError:  # not Linux, or the thread has not begun
        found = resource.getrusage(resource.RUSAGE_SELF)
        return found.ru_nvcsw + found.ru_nivcsw


class ProcessDelays:
    """The delays of one process. ``running`` returns the running handlers, in any thread. ``blocked`` is called with a
    sentence while the event loop is blocked, and ``ticked`` with the time whenever threads of the process run."""

    def __init__(
        self,
        running: Callable[[], Running],
        blocked: Callable[[str], None],
        ticked: Callable[[float], None],
    ) -> None:
        self._running = running
        self._blocked = blocked
        self._ticked = ticked
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._lock = threading.Lock()
        self._ticked_at = time.monotonic()
        self._usage = _usage(None)
        self._asked_at: float | None = None
        """Time when the event loop was asked; None once it has answered."""
        self._said: str | None = None
        """The sentence that was logged about the current block; None without one."""
        self._last: tuple[float, str] | None = None
        """End of the last pause, and the sentence about it; None before the first pause."""
        self._delay = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headwater-delays", daemon=True)

    def start(self) -> None:
        with self._lock:
            self._thread.start()
            self._usage = self._used()
        self._ticked(self._ticked_at)

    def stop(self) -> None:
        self._stop.set()

    @property
    def loop_delay(self) -> float:
        """Seconds for which a ready call waited for the event loop, or has waited so far."""
        asked = self._asked_at
        return self._delay if asked is None else max(self._delay, time.monotonic() - asked)

    def cause(self) -> str | None:
        """Return a sentence that says why this process was paused just now; None if it was not."""
        with self._lock:
            self._look()
            if self._said is not None:
                return self._said
            if self._last is None or time.monotonic() - self._last[0] > AFTERMATH_SECONDS:
                return None
            return self._last[1]

    # --- in the thread ----------------------------------------------------------------------------

    def _used(self) -> _Usage:
        return _usage(self._thread.native_id)

    def _run(self) -> None:
        while not self._stop.wait(TICK_SECONDS) and not self._loop.is_closed():
            with self._lock:
                self._look()
                self._ticked_at, self._usage = time.monotonic(), self._used()
                self._ticked(self._ticked_at)
                try:
                    self._ask()
                except RuntimeError:
                    return  # the event loop has been closed

    def _look(self) -> None:
        """Check whether the process was paused since the last tick."""
        now, usage = time.monotonic(), self._used()
        late = now - self._ticked_at - TICK_SECONDS
        asleep = usage.suspended - self._usage.suspended
        if asleep > LATE_SECONDS:
            self._pause(f"this machine was suspended for {asleep:.1f} s")
        elif late > LATE_SECONDS:
            switches = usage.switches - self._usage.switches
            if switches < SWITCHES_PER_SECOND * late:
                self._pause(
                    f"this process was stopped for {late:.1f} s (SIGSTOP, a debugger or a freezer)"
                )
            else:
                self._pause(
                    f"no thread of this process ran for {late:.1f} s: the interpreter's lock (GIL) was held while "
                    f"{self._handlers(now - late)} ran. Call such code in another process, or release the lock"
                )
        else:
            return
        self._ticked_at, self._usage = now, usage
        if self._asked_at is not None:
            self._asked_at = now

    def _pause(self, text: str) -> None:
        self._last = time.monotonic(), text
        log.warning("%s", text)

    def _ask(self) -> None:
        """Ask the event loop to answer. If there is no answer for long, log the handler that blocks it."""
        now = self._ticked_at
        if self._asked_at is None:
            self._asked_at = now
            self._loop.call_soon_threadsafe(self._answer)
            return
        delay = now - self._asked_at
        if delay < LATE_SECONDS:
            return
        stack = frames_of_thread(self._loop_thread)
        text = (
            f"the event loop has been blocked for {delay:.1f} s by {self._current()}, at {compact(stack)}: an `async` "
            "handler must not wait or compute for long without `await`"
        )
        if self._said is None:
            log.warning("%s", text)
        self._said = text
        self._blocked(text)

    def _answer(self) -> None:
        """Record that the event loop runs again. Called in the event loop."""
        with self._lock:
            if self._asked_at is None:
                return
            self._delay = time.monotonic() - self._asked_at
            self._asked_at = None
            if self._said is not None:
                self._last = time.monotonic(), self._said
                self._said = None
                log.warning("the event loop runs again after %.1f s", self._delay)

    def _current(self) -> str:
        """Return what the event loop is running, for the log: a handler, another task, or other code."""
        try:
            task = asyncio.current_task(self._loop)
        except RuntimeError:
            task = None
        for name, owned in self._all():
            if task is not None and task in (owned.task, owned.batch and owned.batch.task):
                return _named(name, owned)
        return "code outside of handlers" if task is None else f"task {task.get_name()!r}"

    def _handlers(self, since: float) -> str:
        """Return the handlers that began before ``since``, oldest first."""
        found = sorted(self._all(), key=lambda one: one[1].began)
        found = [one for one in found if one[1].began <= since] or found
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        return ", ".join(_named(*one) for one in found[:NAMED]) + more or "no handler"

    def _all(self) -> Running:
        for _ in range(3):
            try:
                return self._running()
            except RuntimeError:
                continue  # a set changed while this thread read it
        return []


def _named(name: str, owned: Owned) -> str:
    return f"{name} ({owned.id.decode()} of {owned.delivery.stream})"
