"""An event loop that kills or halts a simulated process at a chosen step.

A process is everything that was started in one context: tasks, callbacks, timers, and what these start. A
step is one callback that the event loop runs for it, so there is an await between two steps. A killed
process runs nothing more, no ``finally`` and no cancellation, as after SIGKILL. A halted process runs
nothing until it continues, as between SIGSTOP and SIGCONT. Its timers fire late.

An await of the embedded store returns at once. `every_command_a_step` makes it yield to the loop, so that a
process can also die between two commands.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any

from headwater.client.aio.embedded import EmbeddedWriter
from headwater.testing.clock import ManualClock

_PROCESS: ContextVar[int] = ContextVar("_PROCESS", default=0)
"""The process that the running callback belongs to. 0 is the test."""

Callback = tuple[Callable[..., Any], tuple[Any, ...], Context]


class SteppingLoop(asyncio.SelectorEventLoop):
    """Counts the steps of each process. Defers the steps of halted ones and drops those of dead ones."""

    clock: ManualClock
    """The clock by which processes sleep."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: defaultdict[int, int] = defaultdict(int)
        self._alive: set[int] = set()
        self._halted: dict[int, list[Callback]] = {}
        self._plans: dict[int, tuple[int, Callable[[], None]]] = {}
        self._spawned = 0
        self._outside = copy_context()
        self._dropped: list[Callback] = []
        self._finishing = False

    @property
    def steps(self) -> int:
        """Steps of the last process so far."""
        return self._steps[self._spawned]

    def spawn(
        self, begin: Callable[[], None], *, at: int | None, then: Callable[[int], None]
    ) -> int:
        """Run ``begin`` as a new process and return its number. Before step ``at`` of the process, call
        ``then`` with that number, outside of any process."""
        self._spawned += 1
        number = self._spawned
        self._alive.add(number)
        if at is not None:
            self._plans[number] = (at, lambda: self._outside.copy().run(then, number))
        self.run_as(number, begin)
        return number

    def outside(self, work: Callable[[], None]) -> None:
        """Call ``work`` outside of any process, after the current step."""
        self._outside.copy().run(super().call_soon, work)

    def run_as(self, number: int, work: Callable[[], None]) -> None:
        """Call ``work`` in this process now."""
        context = self._outside.copy()
        context.run(_PROCESS.set, number)
        context.run(work)

    def kill(self, number: int) -> None:
        """Kill this process. The current step must not continue."""
        self._alive.discard(number)
        self._dropped += self._halted.pop(number, [])

    def halt(self, number: int) -> None:
        """Run nothing of this process until it is resumed."""
        self._halted[number] = []

    def resume(self, number: int) -> None:
        """Continue a halted process."""
        for callback, args, context in self._halted.pop(number, []):
            super().call_soon(self._step, callback, args, context, context=context)

    def disarm(self) -> None:
        """Cancel the planned interruptions."""
        self._plans.clear()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Like every event loop's, but each call in a process is a step."""
        found = copy_context() if context is None else context
        if not found.get(_PROCESS):
            return super().call_soon(callback, *args, context=found)
        return super().call_soon(self._step, callback, args, found, context=found)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle | ProcessTimer:
        """Processes wait by the clock that the test advances, also for the network."""
        if not _PROCESS.get():
            return super().call_later(delay, callback, *args, context=context)
        return ProcessTimer(self, delay, partial(callback, *args), context or copy_context())

    def _step(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context) -> None:
        number = _PROCESS.get()
        if self._runs(number):
            self._steps[number] += 1
            at, then = self._plans.get(number, (0, None))
            if then is not None and self._steps[number] == at:
                then()
        if self._runs(number):
            callback(*args)
        else:
            waiting = self._halted.get(number, self._dropped)
            waiting.append((callback, args, context))

    def _runs(self, number: int) -> bool:
        return self._finishing or (number in self._alive and number not in self._halted)

    def finish(self) -> None:
        """Let dead processes end normally, once nothing depends on them any more."""
        self._finishing = True
        for number in [*self._halted]:
            self.kill(number)
        for callback, args, context in self._dropped:
            super().call_soon(callback, *args, context=context)
        self._dropped.clear()


def process() -> int:
    """The number of the running process."""
    return _PROCESS.get()


class ProcessTimer:
    """A timer that calls back in the process that set it."""

    def __init__(
        self, loop: SteppingLoop, delay: float, callback: Callable[[], Any], context: Context
    ) -> None:
        self._callback: Callable[[], Any] | None = callback
        self._timer = loop.clock.call_later(
            delay, lambda: loop.call_soon(self._fire, context=context)
        )

    def _fire(self) -> None:
        if self._callback is not None:
            self._callback()

    def cancel(self) -> None:
        self._callback = None
        self._timer.cancel()


class ProcessClock:
    """A clock whose timers belong to the process that sets them. Timers of a dead process do not fire, and
    those of a halted process fire late."""

    def __init__(self, clock: ManualClock, loop: SteppingLoop) -> None:
        self._clock = clock
        self._loop = loop
        loop.clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def call_later(self, delay: float, callback: Callable[[], Any]) -> ProcessTimer:
        return ProcessTimer(self._loop, delay, callback, copy_context())


@contextmanager
def every_command_a_step() -> Iterator[None]:
    """Make processes yield to the loop between a command and its reply."""

    async def drain(_writer: Any) -> None:
        if _PROCESS.get():
            await asyncio.sleep(0)

    before = EmbeddedWriter.drain
    EmbeddedWriter.drain = drain  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        EmbeddedWriter.drain = before  # type: ignore[method-assign]
