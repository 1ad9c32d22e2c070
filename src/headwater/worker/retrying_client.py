"""One client of a worker, over which operations are carried out until the store has answered.

Rule 1. What to do about an error says `groups.store_errors`, and nobody else.
Rule 2. Pauses double from one failure to the next, and begin again short after an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headwater.groups.operation import Operation, Refused, perform, single
from headwater.groups.store_errors import Remedy, Step, lost_connection, remedy
from headwater.worker.clocks import Timers, sleep
from headwater.worker.connections import Connections, Pause

if TYPE_CHECKING:
    import redis.asyncio

T = TypeVar("T")


class RetryingClient:
    """A client with a pool of connections; ``who`` names it in the log. It is about ``stream``."""

    def __init__(
        self, who: str, *, stream: str, clock: Timers, connections: Connections, deadline_s: float
    ) -> None:
        self.who = who
        self.client: redis.asyncio.Redis = connections.asynchronous(
            deadline_s=deadline_s, home=stream
        )
        self._clock = clock
        self._availability = connections.availability

    async def close(self) -> None:
        """Close the connections; a store that is away is not an error here."""
        try:
            await self.client.aclose()
        except lost_connection():
            pass

    async def answered(
        self, make: Callable[[], Operation[T]], step: Step, *, losses: int | None = None
    ) -> T:
        """Carry out the operation that ``make`` returns, as often as it takes.

        Raises what `troubles.remedy` does not wait for; with ``losses`` also the error of the
        connection that was lost so many times under this operation, while the store answered before
        and after each. Only an operation that may run twice may be passed.
        """
        pause = Pause()
        lost = 0
        while True:
            try:
                result = await perform(self.client, make())
            except Exception as error:
                what = remedy(error, step)
                if what not in (Remedy.WAIT, Remedy.RECONNECT):
                    raise
                await self.wait(error, pause)
                if not isinstance(error, Refused):
                    lost += 1
                    await self._reached(pause)
                    if losses is not None and lost >= losses:
                        raise
            else:
                if (
                    step is not Step.SETTLE
                ):  # what it returns may be errors: `SettlementSender` knows
                    self.well()
                return result

    async def _reached(self, pause: Pause) -> None:
        """Return when the store answers, whatever it answers."""
        while True:
            try:
                await perform(self.client, single("PING"))
            except Refused:
                return
            except lost_connection() as error:
                await self.wait(error, pause)
            else:
                return

    async def wait(self, error: BaseException, pause: Pause) -> None:
        """Wait before the next attempt; after READONLY and its like, over new connections."""
        seconds = pause.next()
        self._availability.troubled(self.who, error, pause=seconds)
        if remedy(error, Step.READ) is Remedy.RECONNECT:
            await self.client.connection_pool.disconnect(inuse_connections=False)
        await sleep(self._clock, seconds)

    def well(self) -> None:
        """The store answered."""
        self._availability.well(self.who)
