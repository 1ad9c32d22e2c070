"""A client of the store that repeats operations until the store has answered.

Rule 1. `protocol.store_errors` alone decides the remedy for an error.
Rule 2. Pauses double from one failure to the next. After a reply, the next pause is short again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headwater.groups.protocol.operation import Operation, Refused, perform, single
from headwater.groups.protocol.store_errors import Remedy, Step, lost_connection, remedy
from headwater.worker.store.clocks import Timers, sleep
from headwater.worker.store.connections import Pause
from headwater.worker.store.shared_connection import SharedConnection, SharedConnections

T = TypeVar("T")


class RetryingClient:
    """Uses the shared connection to the node of ``stream``. ``who`` names it in the log."""

    def __init__(
        self, who: str, *, stream: str, clock: Timers, connections: SharedConnections
    ) -> None:
        self.who = who
        self._stream = stream
        self._connections = connections
        self._clock = clock
        self._availability = connections.availability

    @property
    def client(self) -> SharedConnection:
        """The connection, which other tasks use too."""
        return self._connections.of(self._stream)

    def close(self) -> None:
        """Stop using the connection."""
        self._availability.left(self.who)

    async def answered(
        self, make: Callable[[], Operation[T]], step: Step, *, losses: int | None = None
    ) -> T:
        """Run the operation that ``make`` returns, repeat it until the store has answered, and return its result.
        It must be harmless to run the operation twice.

        Raises errors for which `store_errors.remedy` does not wait. With ``losses``, also raises the error of a
        broken connection if this operation has lost that many connections, while the store answered in between.
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
                # Outcomes of settlements may be errors. `SettlementSender` checks them.
                if step is not Step.SETTLE:
                    self.well()
                return result

    async def _reached(self, pause: Pause) -> None:
        """Wait until the store answers, even with an error."""
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
        """Wait before the next attempt. After READONLY and similar errors, the attempt will use new connections."""
        seconds = pause.next()
        self._availability.troubled(self.who, error, pause=seconds)
        if remedy(error, Step.READ) is Remedy.RECONNECT:
            self.client.renew()
        await sleep(self._clock, seconds)

    def well(self) -> None:
        """Record that the store has answered."""
        self._availability.well(self.who)
