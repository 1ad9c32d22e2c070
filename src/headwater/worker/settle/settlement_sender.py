"""Sends settlements in batches, and repeats them until the store has replied with an outcome for each.

Rule 1. While the store refuses writes, settlements wait and are repeated. This does not count as an attempt.
Rule 2. An error of one settlement fails only this settlement. A batch with results that is refused, or that is
        large and has lost its connection twice, is split in halves.
Rule 3. A single settlement with a result fails if the result is refused, or if the server has closed the connection
        twice because of its size. A settlement without a result is never refused for good, so it waits.
Rule 4. Instead of failing because of its size, a dead letter is replaced by a shorter one (`settling.shortened`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, Protocol

from headwater.groups.protocol.operation import Operation, Refused
from headwater.groups.protocol.store_errors import Remedy, Step, lost_connection, remedy
from headwater.groups.settling.settling import (
    Settlement,
    SettleOutcome,
    is_too_large,
    renew,
    shortened,
    size_of,
)
from headwater.worker.store.connections import Pause
from headwater.worker.store.retrying_client import RetryingClient

PATIENCE: Final = 2
"""Number of lost connections after which a large batch is split."""

SMALLEST_LIMIT: Final = 1024 * 1024
"""Size of a request, in bytes, below which no server closes a connection: proto-max-bulk-len and
client-query-buffer-limit cannot be set lower (redis.conf)."""

FRAME_BYTES: Final = len(b"$1048576\r\n\r\n")
"""Maximum number of bytes before and after a value that is below this limit."""


class Ask(Protocol):
    """`InFlight.ask`: runs an operation, and creates a vanished group again."""

    async def __call__(
        self, make: Any, *, step: Step = Step.READ, losses: int | None = None
    ) -> Any: ...


Settle = Callable[[Sequence[Settlement], AbstractSet[bytes]], Operation[list[SettleOutcome]]]
"""The type of `GroupSession.settle`."""


class SettlementSender:
    """Sends one consumer's settlements."""

    def __init__(self, retrying: RetryingClient, ask: Ask, settle: Settle) -> None:
        self._retrying = retrying
        self._ask = ask
        self._settle = settle
        self._unknown: set[bytes] = set()
        """Ids of entries whose settlement was sent but not answered yet."""

    async def send(self, settlements: Sequence[Settlement]) -> list[SettleOutcome]:
        """Settle, and return one outcome for each settlement, in order. Waits while the store returns
        temporary errors."""
        outcomes = await self._answers(settlements)
        pause = Pause()
        while waiting := [n for n, one in enumerate(outcomes) if _passes(one)]:
            error = outcomes[waiting[0]].error
            assert error is not None, "these outcomes are errors"
            await self._retrying.wait(error, pause)
            again = await self._answers([settlements[n] for n in waiting])
            for n, outcome in zip(waiting, again, strict=True):
                outcomes[n] = outcome
        self._retrying.well()
        return outcomes

    async def _answers(self, settlements: Sequence[Settlement]) -> list[SettleOutcome]:
        """Return the store's outcome of each settlement. It may be a temporary error (`_passes`)."""
        if not settlements:
            return []
        alone = len(settlements) == 1
        can_fail = any(one.additions for one in settlements)
        losses = PATIENCE if can_fail else None
        pause = Pause()
        while True:
            try:
                outcomes = await self._once(settlements, losses=losses)
            except lost_connection() as error:
                size = sum(size_of(one.additions) for one in settlements)
                if size + _framing(settlements) < SMALLEST_LIMIT:
                    losses = None  # these settlements are not the cause
                elif not alone:
                    return await self._halves(settlements)
                elif not _timed_out(error):
                    self._unknown.difference_update(settlements[0].ids)
                    return await self._shorter(settlements[0], _too_large(size, error))
            except Refused as error:
                if not can_fail:
                    await self._retrying.wait(error, pause)
                elif not alone:
                    return await self._halves(settlements)
                elif is_too_large(settlements[0], error):
                    return await self._shorter(settlements[0], error)
                elif await self._refused_too(settlements[0]):
                    await self._retrying.wait(error, pause)
                else:
                    return [SettleOutcome(done=False, error=error)]
            else:
                return await self._without_outages(settlements, outcomes)

    async def _shorter(self, settlement: Settlement, error: Refused) -> list[SettleOutcome]:
        """Settle with a shorter addition, because of the size of the other one. Return ``error`` if the settlement has none."""
        if settlement.shorter is None:
            return [SettleOutcome(done=False, error=error)]
        return await self._answers([shortened(settlement, str(error))])

    async def _once(
        self, settlements: Sequence[Settlement], *, losses: int | None = None
    ) -> list[SettleOutcome]:
        """Send one batch and return its outcomes. Raises errors of the store and of the connection."""
        unknown, attempts = self._unknown, 0

        def attempt(_member: object) -> Operation[list[SettleOutcome]]:
            nonlocal attempts
            attempts += 1
            if attempts > 1:
                unknown.update(_with_results(settlements))
            return self._settle(settlements, unknown)

        try:
            outcomes: list[SettleOutcome] = await self._ask(
                attempt, step=Step.SETTLE, losses=losses
            )
        except lost_connection():
            unknown.update(_with_results(settlements))
            raise
        except BaseException:
            unknown.difference_update(_with_results(settlements))
            raise
        if unknown:
            unknown.difference_update(_with_results(settlements))
        return outcomes

    async def _halves(self, settlements: Sequence[Settlement]) -> list[SettleOutcome]:
        middle = len(settlements) // 2
        first = await self._answers(settlements[:middle])
        return first + await self._answers(settlements[middle:])

    async def _without_outages(
        self, settlements: Sequence[Settlement], outcomes: list[SettleOutcome]
    ) -> list[SettleOutcome]:
        """Repeat settlements that failed with NOPERM while the member may not use its own stream either. Then the
        result is not the cause of the failure."""
        denied = [n for n, one in enumerate(outcomes) if one.error and one.error.code == "NOPERM"]
        pause = Pause()
        while denied and await self._refused_too(settlements[denied[0]]):
            error = outcomes[denied[0]].error
            assert error is not None, "these outcomes are errors"
            await self._retrying.wait(error, pause)
            again = await self._once([settlements[n] for n in denied])
            for n, outcome in zip(denied, again, strict=True):
                outcomes[n] = outcome
            denied = [n for n in denied if (error := outcomes[n].error) and error.code == "NOPERM"]
        return outcomes

    async def _refused_too(self, settlement: Settlement) -> bool:
        """Return whether the store also refuses a renewal, which uses only the group."""
        try:
            await self._ask(lambda member: renew(member, [settlement.id]), step=Step.SETTLE)
        except Refused:
            return True
        return False


def _framing(settlements: Sequence[Settlement]) -> int:
    """Return the maximum number of bytes that the protocol adds to the fields of the additions."""
    return FRAME_BYTES * sum(2 * len(a.fields) for one in settlements for a in one.additions)


def _with_results(settlements: Sequence[Settlement]) -> Iterator[bytes]:
    """Return the ids of the entries that are settled with a result."""
    return (entry_id for one in settlements if one.additions for entry_id in one.ids)


def _passes(outcome: SettleOutcome) -> bool:
    """Return whether the outcome is a temporary error of the store."""
    error = outcome.error
    return error is not None and remedy(error, Step.SETTLE) in (Remedy.WAIT, Remedy.RECONNECT)


def _timed_out(error: Exception) -> bool:
    from redis.exceptions import TimeoutError as RedisTimeoutError

    return isinstance(error, RedisTimeoutError | TimeoutError)


def _too_large(size: int, error: Exception) -> Refused:
    return Refused(
        f"ERR the store closed the connection {PATIENCE} times while it received this result of "
        f"{size} bytes. Make the result smaller, or raise proto-max-bulk-len: {error}"
    )
