"""Decides the settlement of a delivery from its outcome.

If the handler returned, the entry is acknowledged and the results are published in the same step
(`InFlight.acknowledge`). `decide` decides every other outcome.

outcome                      settlement
─────────────────────────    ─────────────────────────────────────────────────────────────
Raised Dead, Undecodable     dead letter, now
Raised Again(counted=False)  delivered again after its delay, not counted
Raised, TimedOut             again after Again's or the policy's delay, counted; at the last delivery, dead letter
Crashed                      the same; after max_crashes, a dead letter that names the signal or status;
                             if another message of its batch may be the cause: again immediately, not counted
Exhausted, Condemned         dead letter, without the handler
Expired                      dropped, or a dead letter if declared, without the handler
Unrecorded                   delivered again after the longest wait, for another try at the dead letter
Stopped, Parted              handed back, not counted
Lost                         none: another worker owns the entry
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from headwater.groups.settling.dead_letters import bury
from headwater.groups.settling.settling import How, Settlement
from headwater.worker.declare.delivery import Delivery
from headwater.worker.declare.outcome import (
    Again,
    Condemned,
    Crashed,
    Dead,
    Exhausted,
    Expired,
    Lost,
    NotReturned,
    Parted,
    Raised,
    Stopped,
    TimedOut,
    Undecodable,
    Unrecorded,
)
from headwater.worker.declare.retry import Backoff

UNRECORDED_MS = 60_000
"""Delay before the next attempt to write a dead letter if the consumer has no retry policy, in milliseconds."""


class Policy(NamedTuple):
    """The options of a consumer that apply to failures. ``chance`` is the source of the jitter."""

    max_deliveries: int
    retry: Backoff | None
    dead: str
    """The dead-letter stream. If it is empty, an entry that would become a dead letter is acknowledged."""
    chance: Random
    settled: How = How.ACK
    """The settlement of an entry that is not delivered again: acknowledge it, or also delete it."""

    def delay_ms(self, error: BaseException, deliveries: int) -> int:
        """Return the milliseconds that the entry waits after ``error``: by `Again`, otherwise by the retry policy."""
        if isinstance(error, Again) and error.after_ms is not None:
            return error.after_ms
        return 0 if self.retry is None else self.retry.delay_ms(deliveries, self.chance)


def decide(outcome: NotReturned, policy: Policy, delivery: Delivery, now: int) -> Settlement | None:
    """Return the settlement that ends this delivery, or None if there is nothing to settle.

    ``now`` is Unix time in milliseconds, for the dead letter.
    """
    entry_id = delivery.id.encode()
    match outcome:
        case Raised(error) | TimedOut(error):
            return _failed(error, policy, delivery, now)
        case Crashed(error, crashes, condemned):
            if not crashes:
                return Settlement(entry_id, How.FAIL)
            if condemned:
                died = "1 process" if crashes == 1 else f"{crashes} processes"
                words = f"Crashes: {died} died while running it alone; {error}"
                return _dead(words, policy, delivery, now, deliveries=delivery.count)
            return _failed(error, policy, delivery, now)
        case Undecodable(error):
            return _dead(error, policy, delivery, now, deliveries=delivery.count)
        case Exhausted():
            before = delivery.count - 1
            words = (
                f"MaxDeliveries: delivered {before} times without being settled, max_deliveries is "
                f"{policy.max_deliveries}"
            )
            return _dead(words, policy, delivery, now, deliveries=before)
        case Condemned(reason):
            return _dead(reason, policy, delivery, now, deliveries=delivery.count - 1)
        case Expired(reason, dead):
            if not dead:
                return Settlement(entry_id, policy.settled)
            return _dead(reason, policy, delivery, now, deliveries=delivery.count - 1)
        case Unrecorded():
            delay = UNRECORDED_MS if policy.retry is None else policy.retry.ceiling_ms
            return Settlement(entry_id, How.FAIL, delay_ms=delay)
        case Stopped() | Parted():
            return Settlement(entry_id, How.SILENT)
        case Lost():
            return None


def _failed(error: BaseException, policy: Policy, delivery: Delivery, now: int) -> Settlement:
    counted = not isinstance(error, Again) or error.counted
    if isinstance(error, Dead) or (counted and delivery.attempts >= policy.max_deliveries):
        return _dead(error, policy, delivery, now, deliveries=delivery.count)
    how = How.FAIL if counted else How.SILENT
    delay = policy.delay_ms(error, delivery.attempts)
    return Settlement(delivery.id.encode(), how, delay_ms=delay)


def _dead(
    error: BaseException | str, policy: Policy, delivery: Delivery, now: int, *, deliveries: int
) -> Settlement:
    if not policy.dead:
        return Settlement(delivery.id.encode(), policy.settled)
    buried = bury(
        delivery,
        policy.dead,
        id=delivery.id.encode(),
        fields=[part for pair in delivery.fields for part in pair],
        deliveries=deliveries,
        error=error,
        at_ms=now,
    )
    return buried._replace(how=policy.settled)
