"""Runs one consumer's handler on one entry and says how the delivery ends.

returns                     → acknowledged; with `into`, what it returned published in that step
raises Dead                 → dead letter, now
does not fit its type       → dead letter, now
raises Again(after)         → again after that time
raises anything else        → again after the consumer's retry
  … on its last delivery    → dead letter, with the error
runs longer than its timeout → as if it had raised TimeoutError
is cancelled at a stop      → handed back, this delivery not counted
has lost its entry          → nothing: it is another's now
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from headwater.errors import DecodeError
from headwater.groups.dead_letters import bury
from headwater.groups.member import Member
from headwater.groups.settling import Addition, How, Settlement
from headwater.messages import error_text
from headwater.worker.clocks import Timers
from headwater.worker.declaration import Consumer
from headwater.worker.endings import Again, Dead
from headwater.worker.held import Held, Stop

log = logging.getLogger("headwater.worker")


class Handling:
    """One consumer's handler, its threads if it needs them, and its rules for failures."""

    def __init__(self, consumer: Consumer, *, clock: Timers, chance: Random) -> None:
        self.consumer = consumer
        self.clock = clock
        self.chance = chance
        self.threads_busy = 0
        self._result_class = _checkable(None if consumer.into is None else consumer.into.type)
        self._threads: ThreadPoolExecutor | None = None
        if not consumer.is_async:
            self._threads = ThreadPoolExecutor(consumer.concurrency, "headwater-handler")

    def close(self) -> None:
        """Let go of the threads; one that still runs ends with its handler."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def handle(self, held: Held, member: Member) -> Settlement | None:
        """Run the handler; how the delivery ends, or None when the entry was lost."""
        try:
            message = self.consumer.stream.codec.decode_flat(held.delivered.fields)
        except DecodeError as error:
            return self.dead(held, member, error)
        timer = None
        if self.consumer.timeout_ms is not None:
            timer = self.clock.call_later(
                self.consumer.timeout_ms / 1000, lambda: held.stop(Stop.TIMEOUT)
            )
        held.task = asyncio.current_task()
        try:
            result = await self._call(message, held)
            additions = self._additions(result)
        except asyncio.CancelledError:
            if held.stopped is None:
                raise
            return self._stopped(held, member)
        except Exception as error:
            return None if held.delivery.lost else self.failed(held, member, error)
        finally:
            task, held.task = held.task, None
            if timer is not None:
                timer.cancel()
            if held.stopped is not None and task is not None:
                task.uncancel()
        if held.delivery.lost:
            return None
        return Settlement(held.id, How.ACK, additions=additions)

    async def _call(self, message: Any, held: Held) -> Any:
        if self._threads is None:
            return await self.consumer.call(message, held.delivery)
        context = contextvars.copy_context()
        self.threads_busy += 1
        future = self._threads.submit(context.run, self.consumer.call, message, held.delivery)
        loop = asyncio.get_running_loop()
        outcome = asyncio.wrap_future(future)
        # Told after the outcome is: whoever sees no thread busy finds what the last one has done.
        future.add_done_callback(lambda _future: _tell(loop, self._thread_ended))
        return await outcome

    def _thread_ended(self) -> None:
        self.threads_busy -= 1

    def _additions(self, result: Any) -> list[Addition]:
        """What a handler returned, as additions: nothing for None, each of a list."""
        into = self.consumer.into
        if into is None or result is None:
            return []
        results = result if isinstance(result, list | tuple) else [result]
        for one in results:
            if not isinstance(one, self._result_class):
                raise TypeError(
                    f"{self.consumer.name} returned a {type(one).__name__}, {into.name!r} holds "
                    f"{self._result_class.__name__}"
                )
        return [into.addition(one) for one in results]

    def _stopped(self, held: Held, member: Member) -> Settlement | None:
        if held.stopped is Stop.LOST:
            return None
        if held.stopped is Stop.STOPPING:
            return Settlement(held.id, How.SILENT)
        seconds = (self.consumer.timeout_ms or 0) / 1000
        return self.failed(held, member, TimeoutError(f"it ran longer than {seconds:g} s"))

    def failed(self, held: Held, member: Member, error: BaseException) -> Settlement:
        """The end of a delivery whose handler raised ``error``."""
        if isinstance(error, Dead) or held.count >= self.consumer.max_deliveries:
            return self.dead(held, member, error)
        delay = 0
        if isinstance(error, Again) and error.after_ms is not None:
            delay = error.after_ms
        elif self.consumer.retry is not None:
            delay = self.consumer.retry.delay_ms(held.count, self.chance)
        log.info(
            "%s failed on %s, delivery %d, again in %d ms: %s",
            self.consumer.name,
            held.delivery.id,
            held.count,
            delay,
            error_text(error),
            exc_info=None if isinstance(error, Again) else error,
        )
        return Settlement(held.id, How.FAIL, delay_ms=delay)

    def exhausted(self, held: Held, member: Member) -> Settlement:
        """The end of an entry that was delivered too often before this delivery."""
        before = held.count - 1
        words = (
            f"MaxDeliveries: delivered {before} times without being settled, max_deliveries is "
            f"{self.consumer.max_deliveries}"
        )
        return self.dead(held, member, words, deliveries=before)

    def dead(
        self,
        held: Held,
        member: Member,
        error: BaseException | str,
        *,
        deliveries: int | None = None,
    ) -> Settlement:
        """The end of an entry that cannot be handled."""
        log.warning(
            "%s of %s becomes a dead letter in %s: %s",
            held.delivery.id,
            member.stream,
            self.consumer.dead,
            error if isinstance(error, str) else error_text(error),
        )
        return bury(
            member,
            self.consumer.dead,
            id=held.id,
            fields=held.delivered.fields,
            deliveries=held.count if deliveries is None else deliveries,
            error=error,
            at_ms=self.clock.now_ms(),
        )


def _checkable(kind: Any) -> type:
    """The class whose instances a type's messages are; dict for a TypedDict, object for the rest."""
    if not isinstance(kind, type):
        return object
    return dict if issubclass(kind, dict) else kind


def _tell(loop: asyncio.AbstractEventLoop, what: Any) -> None:
    """Call back into the loop from a thread; a loop that has ended meanwhile needs no telling."""
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:
        pass
