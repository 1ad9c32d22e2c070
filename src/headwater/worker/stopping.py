"""How one consumer stops: nothing new is read, what runs may end, the rest is handed back.

Rule 1. Entries that wait for a handler are handed back at once, uncounted.
Rule 2. Running handlers have the grace time; the log names them. After it, or after a second
        signal, they are cancelled and their entries handed back, uncounted.
Rule 3. The last settlements wait for a store that is away until the grace time is over; a consumer
        with nothing in hand waits for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from headwater.groups.claiming import Delivered, drop_gone, recover
from headwater.groups.member import retire
from headwater.groups.operation import Refused, perform
from headwater.worker.clocks import Timers
from headwater.worker.connections import lost_connection
from headwater.worker.declaration import Consumer
from headwater.worker.fetch import Fetcher
from headwater.worker.in_flight import InFlight
from headwater.worker.lost_entries import Losses
from headwater.worker.outcome import HandlerOutcome, Stopped
from headwater.worker.owned import Owned, Stop
from headwater.worker.pool import Pool
from headwater.worker.waiting import Changes

log = logging.getLogger("headwater.worker")

CANCELLED_SECONDS = 1.0
"""What a cancelled handler has to clean up in."""

LEAVING_SECONDS = 5.0
"""For the last settlements after a second signal, and for a consumer with nothing in hand."""

QUIETEN_SECONDS = 5.0
"""How long a read that the store does not give back is waited for, in the network's own time."""

NAMED = 5
"""Running handlers that the log names at most."""

HOW_TO_STOP = "SIGTERM or Ctrl-C again stops now"


class Stopping:
    """Stops one consumer; see the module. ``accept`` and ``end`` are the loop's, ``forgotten`` returns
    when the quarantine has nothing more to send."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        consumer_name: str,
        clock: Timers,
        changes: Changes,
        in_flight: InFlight,
        pool: Pool,
        fetcher: Fetcher,
        accept: Callable[[Sequence[Delivered]], Awaitable[None]],
        end: Callable[[Owned, HandlerOutcome], None],
        forgotten: Callable[[], Awaitable[None]],
        losses: Losses,
    ) -> None:
        self._consumer = consumer
        self._consumer_name = consumer_name
        self._clock = clock
        self._changes = changes
        self._in_flight = in_flight
        self._pool = pool
        self._fetcher = fetcher
        self._accept = accept
        self._end = end
        self._forgotten = forgotten
        self._losses = losses

    async def run(self, grace: float, at_once: asyncio.Event) -> None:
        """Stop within ``grace`` seconds, and sooner when ``at_once`` is set."""
        over = self._clock.monotonic() + grace
        self._fetcher.stopping = True
        self._changes.notify()
        if self._pool.running and not at_once.is_set():
            self._say_running(grace)
        await _ended(self._fetcher.quieten(), QUIETEN_SECONDS)
        self._in_flight.hand_back(self._in_flight.unbegun())
        await self._within(self._no_handler_runs(), over - self._clock.monotonic(), at_once)
        interrupted = list(self._pool.running)
        for owned in interrupted:
            owned.stop(Stop.STOPPING)
        if interrupted:
            await self._within(self._no_handler_runs(), CANCELLED_SECONDS)
        for owned in list(self._pool.running):
            # In a thread, or it ignores its cancellation: it is handed back while it runs.
            owned.mark_lost()
            owned.stopped = Stop.LOST
            self._end(owned, Stopped())
        if self._fetcher.joined:
            await self._leave_within(over - self._clock.monotonic(), at_once)

    def _say_running(self, grace: float) -> None:
        now = self._clock.monotonic()
        oldest = sorted(self._pool.running, key=lambda owned: owned.began)
        named = ", ".join(
            f"{owned.delivery.id} of {owned.delivery.stream} for {now - owned.began:.1f} s"
            for owned in oldest[:NAMED]
        )
        rest = len(oldest) - NAMED
        log.warning(
            "stopping: waiting up to %g s for %d running %s (%s%s); %s",
            grace,
            len(oldest),
            self._consumer.name,
            named,
            f", and {rest} more" if rest > 0 else "",
            HOW_TO_STOP,
        )

    async def _no_handler_runs(self) -> None:
        await self._changes.until(lambda: not self._pool.running)

    async def _within(
        self,
        what: Coroutine[Any, Any, Any],
        seconds: float,
        hurry: asyncio.Event | None = None,
    ) -> bool:
        """Whether ``what`` ended before ``seconds`` were over and before ``hurry``; else it is
        cancelled."""
        over = asyncio.Event()
        timer = self._clock.call_later(max(0.0, seconds), over.set)
        ends = [asyncio.ensure_future(what), asyncio.ensure_future(over.wait())]
        if hurry is not None:
            ends.append(asyncio.ensure_future(hurry.wait()))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if ends[0].done():
                ends[0].result()
            return ends[0].done()
        finally:
            timer.cancel()
            for one in ends:
                one.cancel()

    # --- leaving the group ------------------------------------------------------------------------

    async def _leave_within(self, seconds: float, at_once: asyncio.Event) -> None:
        """Send the last settlements and leave the group."""
        leaving = asyncio.ensure_future(self._leave())
        slow = self._clock.call_later(CANCELLED_SECONDS, lambda: self._say_store_slow(seconds))
        left = max(seconds, CANCELLED_SECONDS)
        try:
            if not at_once.is_set():
                await self._within(_finished(leaving), left, at_once)
            if not leaving.done() and at_once.is_set():
                await self._within(_finished(leaving), min(left, LEAVING_SECONDS))
        finally:
            slow.cancel()
            leaving.cancel()
        await asyncio.wait([leaving])
        if leaving.cancelled():
            log.warning(
                "the store did not answer before the stop: %d entries stay with %s until they are "
                "claimed",
                len(self._in_flight.owned),
                self._consumer_name,
            )
            return
        log.info(
            "%s of %s stopped%s",
            self._consumer.group,
            self._consumer.stream.name,
            leaving.result(),
        )

    def _say_store_slow(self, seconds: float) -> None:
        log.warning(
            "stopping: waiting up to %.1f s for the store to take %d settlements; %s, and they are "
            "handled again after claim_after",
            seconds,
            len(self._in_flight.settler),
            HOW_TO_STOP,
        )

    async def _leave(self) -> str:
        """Settle, hand back what arrived unseen, and remove the consumer if it owns nothing; how
        that ended, for the log."""
        in_flight = self._in_flight
        await in_flight.settler.drained()
        if not in_flight.owned and await self._store_is_away():
            return f"; the store is away, so {self._consumer_name} stays in its list of consumers"
        found, gone = await in_flight.ask(lambda who: recover(who, list(in_flight.owned)))
        await self._accept(found)
        if gone:
            await in_flight.ask(lambda who: drop_gone(who, gone, self._losses.pending))
        await in_flight.settler.drained()
        await self._forgotten()
        return "" if await in_flight.ask(retire) else "; its consumer still owns entries"

    async def _store_is_away(self) -> bool:
        """Whether the store does not answer, twice: the first connection may be an old one."""
        client, member = self._in_flight.client, self._in_flight.the_member()
        for _ in range(2):
            try:
                await asyncio.wait_for(perform(client, recover(member, [])), LEAVING_SECONDS)
            except lost_connection() as error:
                log.debug("the store does not answer: %s", error)
            except Refused:
                return False
            else:
                return False
        return True


async def _finished(task: asyncio.Future[Any]) -> None:
    """Wait for a task without cancelling it when the waiting is cancelled."""
    await asyncio.wait([task])


async def _ended(what: Coroutine[Any, Any, Any], seconds: float) -> None:
    try:
        await asyncio.wait_for(what, seconds)
    except TimeoutError:
        log.debug("a read did not come back within %g s", seconds)
