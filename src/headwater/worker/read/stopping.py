"""Stops one consumer: reading ends, running handlers may end, and other entries are handed back.

Rule 1. Entries that wait for a handler are handed back immediately, and their delivery does not count.
Rule 2. Running handlers may end within the grace time; the log names them. After that time, or a second signal,
        they are cancelled and their entries handed back, and the delivery does not count.
Rule 3. The last settlements wait for an unreachable store until the grace time is over. A consumer without entries
        does not wait that long.
Rule 4. A large reply or result that is under way may end within the grace time, because its duration depends on
        the network. The log names it if it does not end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from headwater.groups.membership.member import retire
from headwater.groups.protocol.operation import Refused, perform
from headwater.groups.reading.claiming import Delivered, drop_gone, recover
from headwater.worker.declare.outcome import Stopped
from headwater.worker.declare.owned import Stop
from headwater.worker.read.admission import Admission
from headwater.worker.read.fetch import Fetcher
from headwater.worker.read.quarantine import Quarantine
from headwater.worker.run.endings import Endings
from headwater.worker.run.pool import Pool
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.settle.scope import Scope
from headwater.worker.store.connections import lost_connection
from headwater.worker.store.waiting import within

log = logging.getLogger("headwater.worker")

CANCELLED_SECONDS = 1.0
"""Maximum time for a cancelled handler to clean up, in seconds."""

LEAVING_SECONDS = 5.0
"""Maximum time for leaving after a second signal, and for a consumer without entries, in seconds."""

QUIETEN_SECONDS = 5.0
"""Maximum wait for the end of a read, in seconds of real time."""

NAMED = 5
"""Maximum number of running handlers that the log names."""

HOW_TO_STOP = "SIGTERM or Ctrl-C again stops now"


class Stopping:
    """Stops one consumer by the rules of this module."""

    def __init__(
        self,
        scope: Scope,
        *,
        in_flight: InFlight,
        pool: Pool,
        endings: Endings,
        admission: Admission,
        quarantine: Quarantine,
        fetcher: Fetcher,
    ) -> None:
        self._consumer = scope.consumer
        self._consumer_name = scope.consumer_name
        self._clock = scope.clock
        self._changes = scope.changes
        self._in_flight = in_flight
        self._pool = pool
        self._endings = endings
        self._admission = admission
        self._quarantine = quarantine
        self._fetcher = fetcher

    async def run(self, grace: float, at_once: asyncio.Event) -> None:
        """Stop within ``grace`` seconds, or sooner if ``at_once`` is set."""
        over = self._clock.monotonic() + grace
        self._admission.stopping = True
        self._changes.notify()
        if self._pool.running and not at_once.is_set():
            self._log_running(grace)
        await _ended(self._fetcher.quieten(), QUIETEN_SECONDS)
        if self._fetcher.large_reply():
            left = over - self._clock.monotonic()
            await within(self._clock, left, self._fetcher.quieten(), at_once)
        self._in_flight.hand_back(self._in_flight.unbegun())
        left = over - self._clock.monotonic()
        await within(self._clock, left, self._no_handler_runs(), at_once)
        interrupted = list(self._pool.running)
        for owned in interrupted:
            owned.stop(Stop.STOPPING)
        if interrupted:
            await within(self._clock, CANCELLED_SECONDS, self._no_handler_runs())
        for owned in list(self._pool.running):
            # The handler runs in a thread, or ignores its cancellation, so hand back the entry although it runs.
            owned.mark_lost()
            owned.stopped = Stop.LOST
            self._endings.end(owned, Stopped())
        if self._fetcher.joined:
            await self._leave_within(over - self._clock.monotonic(), at_once)

    def _log_running(self, grace: float) -> None:
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

    # --- leaving the group ------------------------------------------------------------------------

    async def _leave_within(self, seconds: float, at_once: asyncio.Event) -> None:
        """Send the last settlements and leave the group."""
        leaving = asyncio.ensure_future(self._leave())
        slow = self._clock.call_later(CANCELLED_SECONDS, lambda: self._log_store_slow(seconds))
        left = max(seconds, CANCELLED_SECONDS)
        try:
            if not at_once.is_set():
                await within(self._clock, left, _finished(leaving), at_once)
            if not leaving.done() and at_once.is_set():
                await within(self._clock, min(left, LEAVING_SECONDS), _finished(leaving))
        finally:
            under_way = self._in_flight.settler.under_way() or self._fetcher.large_reply()
            slow.cancel()
            leaving.cancel()
        await asyncio.wait([leaving])
        if leaving.cancelled():
            log.warning(
                "%s: %s still owns entries (%d) until they are claimed",
                f"the time to stop was over, with {under_way}"
                if under_way
                else "the store did not answer before the stop",
                self._consumer_name,
                len(self._in_flight.owned),
            )
            return
        log.info(
            "%s of %s stopped%s",
            self._consumer.group,
            self._consumer.stream.name,
            leaving.result(),
        )

    def _log_store_slow(self, seconds: float) -> None:
        if not (len(self._in_flight.settler) or self._in_flight.owned):
            return  # nothing is lost if this takes too long
        log.warning(
            "stopping: waiting up to %.1f s for the store to accept the last settlements (%d%s); %s, and the "
            "entries are handled again after claim_after",
            seconds,
            len(self._in_flight.settler),
            f": {under_way}" if (under_way := self._in_flight.settler.under_way()) else "",
            HOW_TO_STOP,
        )

    async def _leave(self) -> str:
        """Settle everything, hand back entries of a lost reply, and remove the consumer if it owns nothing. Return
        text for the end of the log line."""
        in_flight = self._in_flight
        await in_flight.settler.drained()
        recovered = None if in_flight.owned else await self._recovered()
        if recovered is None and not in_flight.owned:
            return f"; the store is unreachable, so consumer {self._consumer_name} was not removed"
        if recovered is None:
            recovered = await in_flight.ask(lambda who: recover(who, list(in_flight.owned)))
        found, gone = recovered
        await self._admission.accept(found)
        if gone:
            losses = self._endings.telemetry.losses
            await in_flight.ask(lambda who: drop_gone(who, gone, losses.pending))
        await in_flight.settler.drained()
        await self._quarantine.forgotten()
        return "" if await in_flight.ask(retire) else "; its consumer still owns entries"

    async def _recovered(self) -> tuple[list[Delivered], list[bytes]] | None:
        """Return the entries of a lost reply; None if the store does not answer. Tries twice, because the first
        connection may be an old one."""
        client, member = self._in_flight.client, self._in_flight.the_member()
        for _ in range(2):
            try:
                return await asyncio.wait_for(perform(client, recover(member, [])), LEAVING_SECONDS)
            except lost_connection() as error:
                log.debug("the store does not answer: %s", error)
            except Refused:
                found: tuple[list[Delivered], list[bytes]] = await self._in_flight.ask(
                    lambda who: recover(who, [])
                )
                return found
        return None


async def _finished(task: asyncio.Future[Any]) -> None:
    """Wait for a task. Cancelling the wait does not cancel the task."""
    await asyncio.wait([task])


async def _ended(what: Coroutine[Any, Any, Any], seconds: float) -> None:
    try:
        await asyncio.wait_for(what, seconds)
    except TimeoutError:
        log.debug("a read did not end within %g s", seconds)
