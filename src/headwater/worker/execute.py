"""Runs a consumer's handler on a delivery, or on a batch, and returns the outcome.

Rule 1. Everything that the handler does leads to an outcome: it returns, raises any exception, is cancelled by
        its own code, or returns a generator, which is never run. `Executor.call` raises only if the framework
        cancels the task to abandon its work.
Rule 2. An awaitable that the handler returns is awaited before the delivery is acknowledged.
Rule 3. A handler that is not ``async`` runs in a thread. Its exception is returned as a value, because a future
        cannot store every exception.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from traceback import FrameSummary
from typing import Any

from headwater.errors import DecodeError
from headwater.worker.clocks import Timer, Timers
from headwater.worker.declaration import Consumer
from headwater.worker.dependencies import Values
from headwater.worker.invoke import Invocation
from headwater.worker.middleware import Chain
from headwater.worker.outcome import (
    LOST,
    RETURNED,
    HandlerOutcome,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    Undecodable,
)
from headwater.worker.owned import Owned, Stop, Work
from headwater.worker.pool import dismissed
from headwater.worker.results import Results
from headwater.worker.stacks import frames_of_coroutine, frames_of_thread

MOST_AWAITED = 8
"""How many nested awaitables are awaited. More are probably an object that returns itself."""


MOST_TYPES = 64
"""How many types of results are remembered as plain values, which need not be awaited."""


class Executor:
    """Runs one consumer's handler, in threads if the handler is not ``async``."""

    def __init__(self, consumer: Consumer, *, clock: Timers, chain: Chain, values: Values) -> None:
        self.consumer = consumer
        self.clock = clock
        self.threads_busy = 0
        self._chain = chain
        self._decode = consumer.stream.codec.decode_flat
        self._timeout_s = None if consumer.timeout_ms is None else consumer.timeout_ms / 1000
        self._values: set[type] = set()
        self._results = Results(consumer.into, consumer.name)
        self._threads: ThreadPoolExecutor | None = None
        self._idents: dict[object, int] = {}
        """The thread in which each slot's handler runs, or ran last."""
        if not consumer.is_async:
            self._threads = ThreadPoolExecutor(consumer.concurrency, "headwater-handler")
        self._invocation: Invocation | None = None
        if consumer.needs or chain.handle:
            self._invocation = Invocation(
                consumer,
                chain=chain,
                values=values,
                in_thread=self._call_in_thread if self._threads is not None else None,
                finish=self._awaited,
                check=self._results.additions,
            )
        self._plain: Callable[[Any], Awaitable[Any]] | None = None
        if consumer.is_async and self._invocation is None:
            self._plain = consumer.plain

    def close(self) -> None:
        """Shut down the threads. A thread that still runs ends with its handler."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def decode(self, owned: Owned) -> tuple[Any, HandlerOutcome | None]:
        """Return the entry's message, or the outcome of an entry that cannot be decoded."""
        try:
            return self._decode(owned.delivered.fields), None
        except DecodeError as error:
            return None, Undecodable(error)
        except BaseException as error:
            return None, Raised(error)  # raised by the message type: __post_init__, a validator

    async def call(self, message: Any, work: Work) -> HandlerOutcome:
        """Call the handler with a message or a batch, in the task of ``work``, and return the outcome."""
        task = work.task
        assert task is not None, "a handler runs in a task"
        work.in_thread = self._threads is not None
        timer = self._timer(work) if self._timeout_s is not None else None
        outcome: HandlerOutcome = RETURNED
        try:
            if self._plain is not None:
                result = await self._plain(message)
            elif self._invocation is not None:
                result = await self._invocation(message, work.delivery)
            elif self._threads is None:
                result = await self.consumer.call(message, work.delivery)
            else:
                call = partial(self.consumer.call, message, work.delivery)
                result, error = await self._call_in_thread(call)
                if error is not None:
                    outcome = self._failed(work, error)
            if result is not None:
                if type(result) not in self._values:
                    result = await self._awaited(result)
                outcome = self._returned(result)
        except asyncio.CancelledError as error:
            if dismissed(task) or not _runs(task):
                raise
            outcome = self._failed(work, error)
        except BaseException as error:
            if not _runs(task):
                raise  # GeneratorExit: this coroutine is discarded with its loop
            outcome = self._failed(work, error)
        finally:
            work.task = None
            if timer is not None:
                timer.cancel()
        if task.cancelling():
            await _take_back(task)
        return LOST if work.lost and not isinstance(outcome, Returned) else outcome

    def _timer(self, work: Work) -> Timer:
        assert self._timeout_s is not None, "only a consumer with a timeout has timers"
        return self.clock.call_later(self._timeout_s, lambda: work.stop(Stop.TIMEOUT))

    def _returned(self, result: Any) -> HandlerOutcome:
        """Return the outcome of a handler that returned ``result``. Raises an error that makes it a failure."""
        additions = self._results.additions(result)
        if additions and not self._chain.empty:
            self._chain.publishing(additions)
        return Returned(additions)

    async def _awaited(self, result: Any) -> Any:
        """Await the handler's result until it is a plain value, and return that. Raises `TypeError` for a
        generator, which would never run."""
        kind = type(result)
        for _ in range(MOST_AWAITED):
            if not inspect.isawaitable(result):
                break
            result = await result
        else:
            raise TypeError(f"{self.consumer.name} returned an awaitable that never ends")
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise TypeError(
                f"{self.consumer.name} returned a generator, which is never run: return a value, "
                "or a list of results"
            )
        if type(result) is kind and len(self._values) < MOST_TYPES:
            self._values.add(kind)
        return result

    async def _call_in_thread(self, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        assert self._threads is not None, "a handler that is not async has threads"
        context = contextvars.copy_context()
        self.threads_busy += 1
        slot = asyncio.current_task()
        future = self._threads.submit(context.run, self._caught, slot, call)
        loop = asyncio.get_running_loop()
        ended = asyncio.wrap_future(future)
        # Called after the outcome is set: when no thread is busy, all outcomes have been reported.
        future.add_done_callback(lambda _future: _tell(loop, self._thread_ended))
        return await ended

    def _caught(self, slot: object, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """In the thread: call the handler, and return its error as a value."""
        self._idents[slot] = threading.get_ident()
        try:
            return call(), None
        except BaseException as error:
            return None, error

    def stack(self, owned: Owned) -> list[FrameSummary]:
        """Return where the handler of an entry is, the outermost frame first."""
        task = (owned.batch or owned).task
        if task is None:
            return []
        if self._threads is not None:
            return frames_of_thread(self._idents.get(task))
        return frames_of_coroutine(task.get_coro())

    def _thread_ended(self) -> None:
        self.threads_busy -= 1

    def _failed(self, work: Work, error: BaseException) -> HandlerOutcome:
        """Return the outcome for an error. A handler that the framework cancelled may raise any error."""
        if work.stopped is None:
            return Raised(error)
        if work.stopped is Stop.LOST:
            return LOST
        if work.stopped is Stop.STOPPING:
            return Stopped()
        seconds = (self.consumer.timeout_ms or 0) / 1000
        timeout = TimeoutError(f"it ran longer than {seconds:g} s")
        timeout.__cause__ = None if isinstance(error, asyncio.CancelledError) else error
        timeout.__traceback__ = error.__traceback__
        return TimedOut(timeout)


def _runs(task: asyncio.Task[Any]) -> bool:
    """Return whether this task is the current one. It is not if its coroutine is closed from outside."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False


async def _take_back(task: asyncio.Task[Any]) -> None:
    """Undo cancellations that were meant for the handler, including one that was not raised yet."""
    if dismissed(task):
        raise asyncio.CancelledError
    while task.cancelling():
        task.uncancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        if dismissed(task):
            raise


def _tell(loop: asyncio.AbstractEventLoop, what: Any) -> None:
    """Call ``what`` in the loop, from a thread. Do nothing if the loop has ended meanwhile."""
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:
        pass
