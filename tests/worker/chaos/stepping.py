"""An event loop that kills a simulated process at a chosen step.

A process is everything that was started in one context: tasks, callbacks, and what these start. A step is
one callback that the event loop runs for it; between two steps lies an await. At the chosen step the
process dies: the loop runs nothing of it any more, no ``finally`` and no cancellation, as after SIGKILL.

An await of the embedded store returns at once. `every_command_a_step` lets it wait for a turn of the loop, so
that a process can also die between two commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any

from headwater.client.embedded_aio import EmbeddedWriter

_PROCESS: ContextVar[int] = ContextVar("_PROCESS", default=0)
"""The process that the running callback belongs to; 0 is the test."""


class SteppingLoop(asyncio.SelectorEventLoop):
    """Counts the steps of the process that lives, and drops those of dead ones."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        """Steps of the living process so far."""
        self._living = 0
        self._crash_at: int | None = None
        self._crashed: Callable[[], None] = lambda: None
        self._outside = copy_context()
        self._dropped: list[tuple[Callable[..., Any], tuple[Any, ...], Context]] = []

    def spawn(
        self, begin: Callable[[], None], *, crash_at: int | None, crashed: Callable[[], None]
    ) -> None:
        """Run ``begin`` as a new process, the only living one; call ``crashed`` after its death."""
        self._living += 1
        self.steps = 0
        self._crash_at, self._crashed = crash_at, crashed
        context = self._outside.copy()
        context.run(_PROCESS.set, self._living)
        context.run(begin)

    def kill(self) -> None:
        """Kill the living process now, from within: what runs must not go on."""
        self._living += 1
        self._outside.copy().run(super().call_soon, self._crashed)

    def disarm(self) -> None:
        """Let the living process live."""
        self._crash_at = None

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As every event loop's; each call is a step."""
        found = copy_context() if context is None else context
        if not found.get(_PROCESS):
            return super().call_soon(callback, *args, context=found)
        return super().call_soon(self._step, callback, args, found, context=found)

    def _step(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context) -> None:
        if _PROCESS.get() == self._living:
            self.steps += 1
            if self.steps != self._crash_at:
                callback(*args)
                return
            self.kill()
        self._dropped.append((callback, args, context))

    def bury(self) -> None:
        """Let dead processes end in order, once nothing depends on them any more."""
        dropped, self._dropped = self._dropped, []
        for callback, args, context in dropped:
            context.run(_PROCESS.set, 0)
            super().call_soon(callback, *args, context=context)


@contextmanager
def every_command_a_step() -> Iterator[None]:
    """A process waits for a turn of its loop between a command and its reply."""

    async def drain(_writer: Any) -> None:
        if _PROCESS.get():
            await asyncio.sleep(0)

    before = EmbeddedWriter.drain
    EmbeddedWriter.drain = drain  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        EmbeddedWriter.drain = before  # type: ignore[method-assign]
