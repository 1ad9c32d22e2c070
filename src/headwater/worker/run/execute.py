"""Runs a consumer's handler on a delivery, or on a batch, and returns the outcome.

Rule 1. Everything that the handler does leads to an outcome: it returns, raises any exception, is cancelled by
        its own code, or returns a generator, which is never run. `Executor.call` itself raises only if the
        framework cancels the task to abandon its work.
Rule 2. An awaitable that the handler returns is awaited before the settlement. In a pool process it is an error.
Rule 3. A handler that is not ``async`` runs in a thread, or in a pool process for which a thread waits
        (`process_pool`). Its exception is returned as a value, because a future cannot store every exception.
Rule 4. The child of a fork in a handler ends here, and only the parent's ending leads to an outcome (`forked`).
Rule 5. A thread cannot be ended. If its handler runs longer than the ``timeout``, the whole process must end.
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
from typing import TYPE_CHECKING, Any

from headwater.common.forks import FORKS
from headwater.common.stacks import frames_of_coroutine, frames_of_thread
from headwater.errors import DecodeError, HeadwaterError
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.delivery import Delivery
from headwater.worker.declare.dependencies import Values
from headwater.worker.declare.lifespan import StartFailed
from headwater.worker.declare.middleware import Chain
from headwater.worker.declare.outcome import (
    LOST,
    RETURNED,
    Crashed,
    HandlerOutcome,
    NotReturned,
    PoolProcessDied,
    Raised,
    RanTooLong,
    Returned,
    Stopped,
    TimedOut,
    Undecodable,
)
from headwater.worker.declare.owned import Owned, Stop, Work
from headwater.worker.run.forked import end_child
from headwater.worker.run.invoke import Invocation, SyncCall
from headwater.worker.run.pool import dismissed
from headwater.worker.settle.results import Results
from headwater.worker.store.clocks import LoopClock, Timer, Timers

if TYPE_CHECKING:
    from headwater.worker.run.process_pool import ProcessPool

MOST_AWAITED = 8
"""Maximum number of nested awaitables that are awaited. A longer chain is likely an object that returns itself."""


MOST_TYPES = 64
"""Maximum number of result types that are remembered as plain, so that their values need not be examined."""


class HandlerOverran(HeadwaterError):
    """The error of a process in which a handler in a thread ran longer than its ``timeout``. The delivery has failed.
    The process ends, because a thread cannot be ended. ``headwater work`` starts another process."""

    def __init__(self, name: str, delivery: Delivery, seconds: float) -> None:
        super().__init__(
            f"{name} has been handling {delivery.id} of {delivery.stream} for longer than its timeout of "
            f"{seconds:g} s, in a thread, which cannot be ended: the process ends and hands back its other entries. "
            'With executor="process" only the handler\'s own process ends.'
        )


def runs_in_pool(consumer: Consumer, clock: Timers) -> bool:
    """Return whether the handler runs in pool processes. In `App.test` it runs in threads."""
    return consumer.isolated and isinstance(clock, LoopClock)


class Executor:
    """Runs one consumer's handler, in threads if the handler is not ``async``."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        clock: Timers,
        chain: Chain,
        values: Values,
        end_process: Callable[[Exception], None],
    ) -> None:
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
        """Slot → identity of the thread in which its handler runs, or ran last."""
        self._processes: ProcessPool | None = None
        self._end_process = end_process
        self._forks = FORKS.generation
        self._sync: Callable[[Any, Delivery], Any] = consumer.call
        if not consumer.is_async:
            self._threads = ThreadPoolExecutor(consumer.concurrency, "headwater-handler")
            self._choose_sync(values)
        self._invocation: Invocation | None = None
        if chain.handle or (consumer.needs and consumer.is_async):
            self._invocation = Invocation(
                consumer,
                chain=chain,
                values=values,
                apart=self._call_apart if self._threads is not None else None,
                finish=self._awaited,
                check=self._results.additions,
            )
        self._plain: Callable[[Any], Awaitable[Any]] | None = None
        if consumer.is_async and self._invocation is None:
            self._plain = consumer.plain

    def _choose_sync(self, values: Values) -> None:
        """Set the function that a slot's thread calls."""
        consumer = self.consumer
        if runs_in_pool(consumer, self.clock):
            from headwater.worker.run.process_pool import ProcessPool

            self._timeout_s = None  # the pool ends the process itself
            self._processes = ProcessPool(consumer, returns=bool(self._chain.handle))
            self._sync = self._processes.call
        elif consumer.needs:
            self._sync = SyncCall(
                consumer.call,
                consumer.needs,
                consumer.name,
                values=values,
                check=self._results.additions,
            )

    async def prepare(self) -> None:
        """Start the first pool process, if handlers run in pool processes. Raises `StartFailed`."""
        if self._processes is not None and self._threads is not None:
            await asyncio.wrap_future(self._threads.submit(self._processes.prepare))

    async def close(self) -> None:
        """End the pool processes, and shut down the threads. A thread that still runs ends with its handler."""
        if self._processes is not None:
            await asyncio.to_thread(self._processes.close)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def decode(self, owned: Owned) -> tuple[Any, NotReturned | None]:
        """Return the entry's message and None, or None and the outcome if the entry cannot be decoded."""
        try:
            return self._decode(owned.delivered.fields), None
        except DecodeError as error:
            return None, Undecodable(error)
        except BaseException as error:
            return None, Raised(error)  # raised by the type, in __post_init__ or a validator

    async def call(self, message: Any, work: Work) -> HandlerOutcome:
        """Call the handler with a message or a batch, in the task of ``work``, and return the outcome."""
        task = work.task
        assert task is not None, "a handler runs in a task"
        work.in_thread = self._threads is not None
        timer = self._timer(work) if self._timeout_s is not None else None
        if self._processes is not None:
            self._processes.begin(work.delivery)
        outcome: HandlerOutcome = RETURNED
        try:
            if self._plain is not None:
                result = await self._plain(message)
            elif self._invocation is not None:
                result = await self._invocation(message, work.delivery)
            elif self._threads is None:
                result = await self.consumer.call(message, work.delivery)
            else:
                result, error = await self._call_apart(message, work.delivery)
                if error is not None:
                    outcome = self._failed(work, error)
            if result is not None and type(result) not in self._values:
                result = await self._awaited(result)
            if FORKS.generation != self._forks:
                end_child(None)
            if result is not None:
                outcome = self._returned(result)
        except asyncio.CancelledError as error:
            if FORKS.generation != self._forks:
                end_child(error)
            if dismissed(task) or not _runs(task):
                raise
            outcome = self._failed(work, error)
        except BaseException as error:
            if FORKS.generation != self._forks:
                end_child(error)
            if not _runs(task):
                raise  # GeneratorExit: this coroutine is discarded with its loop
            outcome = self._failed(work, error)
        finally:
            work.task = None
            if self._processes is not None:
                self._processes.end(work.delivery)
            if timer is not None:
                timer.cancel()
        if task.cancelling():
            await _take_back(task)
        return LOST if work.lost and not isinstance(outcome, Returned) else outcome

    def _timer(self, work: Work) -> Timer:
        assert self._timeout_s is not None, "only a consumer with a timeout has timers"
        return self.clock.call_later(self._timeout_s, lambda: work.stop(Stop.TIMEOUT))

    def _returned(self, result: Any) -> HandlerOutcome:
        """Return the outcome of a handler that returned ``result``. Raises if this result cannot be published."""
        additions = self._results.additions(result)
        if additions and not self._chain.empty:
            self._chain.publishing(additions)
        return Returned(additions)

    async def _awaited(self, result: Any) -> Any:
        """Await the handler's result until it is a plain value, and return this value. Raises `TypeError` for a
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

    async def _call_apart(
        self, message: Any, delivery: Delivery
    ) -> tuple[Any, BaseException | None]:
        """Call a handler that is not ``async``, and return its result and its error."""
        assert self._threads is not None, "a handler that is not async has threads"
        context = contextvars.copy_context()
        self.threads_busy += 1
        slot = asyncio.current_task()
        future = self._threads.submit(
            context.run, self._caught, slot, partial(self._sync, message, delivery)
        )
        loop = asyncio.get_running_loop()
        ended = asyncio.wrap_future(future)
        # This is called after the outcome is set, so when no thread is busy, all outcomes have been reported.
        future.add_done_callback(lambda _future: _tell(loop, self._thread_ended))
        return await ended

    def _caught(self, slot: object, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """Call the handler, and return its error as a value. Called in the thread."""
        self._idents[slot] = threading.get_ident()
        try:
            result = call()
        except BaseException as error:
            if FORKS.generation != self._forks:
                end_child(error)
            return None, error
        if FORKS.generation != self._forks:
            end_child(None)
        return result, None

    def stack(self, owned: Owned) -> list[FrameSummary]:
        """Return the current stack of an entry's handler, outermost frame first."""
        task = (owned.batch or owned).task
        if task is None:
            return []
        if self._processes is not None:
            return self._processes.stack((owned.batch or owned).delivery)
        if self._threads is not None:
            return frames_of_thread(self._idents.get(task))
        return frames_of_coroutine(task.get_coro())

    def _thread_ended(self) -> None:
        self.threads_busy -= 1

    def _failed(self, work: Work, error: BaseException) -> HandlerOutcome:
        """Return the outcome for an error. A handler that the framework cancelled may raise any error."""
        if work.stopped is None:
            if isinstance(error, StartFailed) and self._processes is not None:
                self._end_process(error)
                return Stopped()  # not the message's fault
            if isinstance(error, PoolProcessDied):
                return Crashed(error)
            if isinstance(error, RanTooLong):
                return TimedOut(TimeoutError(str(error)))
            return Raised(error)
        if work.stopped is Stop.LOST:
            return LOST
        if work.stopped is Stop.STOPPING:
            return Stopped()
        seconds = (self.consumer.timeout_ms or 0) / 1000
        timeout = TimeoutError(f"it ran longer than {seconds:g} s")
        if self._threads is not None and isinstance(self.clock, LoopClock):
            self._end_process(HandlerOverran(self.consumer.name, work.delivery, seconds))
        timeout.__cause__ = None if isinstance(error, asyncio.CancelledError) else error
        timeout.__traceback__ = error.__traceback__
        return TimedOut(timeout)


def _runs(task: asyncio.Task[Any]) -> bool:
    """Return whether ``task`` is the current task. It is not if its coroutine is closed from outside."""
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
    """Call ``what`` in the loop, from a thread. Do nothing if the loop has ended."""
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:
        pass
