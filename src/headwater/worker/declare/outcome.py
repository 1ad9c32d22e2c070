"""Outcomes, which record how the run of a handler ended.

`execute` returns an outcome, and `decide` returns the settlement of the delivery. A handler raises `Dead` or
`Again` to choose the outcome itself.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from headwater.common.durations import milliseconds
from headwater.groups.settling.settling import Addition, How, Settlement


class Dead(Exception):
    """Raise this in a handler if an entry can never be handled. The entry becomes a dead letter immediately, with
    the reason.

    >>> raise Dead("unknown customer")
    Traceback (most recent call last):
    headwater.Dead: unknown customer
    """

    __module__ = "headwater"


class Again(Exception):
    """Raise this in a handler if an entry cannot be handled now. The entry is delivered again later.

    >>> raise Again(after="10s", counted=False, reason="the gateway is closed at night")
    Traceback (most recent call last):
    headwater.Again: the gateway is closed at night

    - ``after``: the time for which the entry waits in the store. By default the consumer's ``retry`` decides.
    - ``counted``: True if the delivery counts towards ``max_deliveries``. With False, the entry may be
      delivered again without end, so pass ``after`` as well.
    - ``reason``: text for the log, and for the dead letter if this was the last delivery.

    The delivery is logged at INFO and does not count as failed in `Counters`. Raises `DeclarationError` if
    ``after`` is not a duration.
    """

    __module__ = "headwater"

    def __init__(
        self, after: str | timedelta | None = None, *, counted: bool = True, reason: str = ""
    ) -> None:
        self.after_ms = None if after is None else milliseconds(after, what="after", least_ms=0)
        """Time for which the entry waits, in milliseconds; None if the consumer's ``retry`` decides."""
        self.counted = counted
        """True if the delivery counts towards ``max_deliveries``."""
        super().__init__(reason or (f"again after {after}" if after is not None else "again"))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the arguments for `pickle`, by which a pool process sends the exception to its worker."""
        after = None if self.after_ms is None else f"{self.after_ms}ms"
        return partial(Again, counted=self.counted, reason=str(self)), (after,)


class Failed(Exception):
    """The error of an item that a batch handler failed by `Batch.fail`, in dead letters and logs.

    It is never raised. To fail a delivery, a handler raises any other exception.
    """

    __module__ = "headwater"


class PoolProcessDied(Exception):
    """The error of a handler with ``executor="process"`` whose process has died. `Middleware` gets this error. It
    is also in the dead letter of a message that has used up its deliveries."""

    __module__ = "headwater"

    def __init__(self, status: int | None) -> None:
        self.status = status
        """The exit status of the process, negative for a signal; None if it is not known."""
        super().__init__(f"its pool process {death(status)}")


class RanTooLong(TimeoutError):
    """The error of a handler that ran longer than its ``timeout``, so that its pool process was ended."""


def death(status: int | None) -> str:
    """Return text that says how a process ended, for errors and logs.

    >>> death(-11), death(3)
    ('was ended by SIGSEGV', 'ended with status 3')
    """
    if status is None or status >= 0:
        return "ended" if status is None else f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


class Returned(NamedTuple):
    """The handler returned, and its results can be published to ``into``."""

    additions: Sequence[Addition] = ()


class Raised(NamedTuple):
    """The handler raised, or its result cannot be published, so the delivery has failed."""

    error: BaseException


class TimedOut(NamedTuple):
    """The handler ran longer than its ``timeout``, so the delivery has failed."""

    error: TimeoutError


class Crashed(NamedTuple):
    """The pool process ended while the handler ran. ``crashes`` is the number of processes that the message has
    ended, 0 if other messages of its batch may be the cause. A ``condemned`` message must not run again."""

    error: PoolProcessDied
    crashes: int = 0
    condemned: bool = False


class Undecodable(NamedTuple):
    """The entry cannot be decoded as the stream's type. The handler did not run."""

    error: Exception


class Exhausted(NamedTuple):
    """The entry was delivered ``max_deliveries`` times before. The handler did not run."""


class Condemned(NamedTuple):
    """The message killed its process ``max_crashes`` times while it ran alone. The handler did not run."""

    reason: str


class Expired(NamedTuple):
    """No worker started the entry in time. It is dropped, or becomes a ``dead`` letter with the reason."""

    reason: str
    dead: bool


class Unrecorded(NamedTuple):
    """The dead-letter stream refused the record."""

    error: Exception


class Stopped(NamedTuple):
    """The worker is stopping, and the handler was cancelled or is still running."""


class Lost(NamedTuple):
    """Another worker owns the entry now."""


class Parted(NamedTuple):
    """Another worker owns another entry of the same batch now, so the batch's result is dropped."""


RETURNED = Returned()
"""The handler returned, without a result."""

LOST = Lost()

NotReturned: TypeAlias = (
    Raised
    | TimedOut
    | Crashed
    | Undecodable
    | Exhausted
    | Condemned
    | Expired
    | Unrecorded
    | Stopped
    | Lost
    | Parted
)

HandlerOutcome: TypeAlias = Returned | NotReturned


class Ending(StrEnum):
    """The ways in which a delivery can end. Methods of `Middleware` get one of them."""

    __module__ = "headwater"

    ACKNOWLEDGED = "acknowledged"
    """The handler returned. Its result is published in the same step."""
    RETRIED = "retried"
    """The handler failed or raised `Again`. The entry is delivered again later."""
    DEAD = "dead"
    """The entry has become a dead letter."""
    EXPIRED = "expired"
    """The entry was not started within its ``expires`` and was acknowledged without being handled."""
    HANDED_BACK = "handed back"
    """The worker is stopping, or the entry has to wait or needs another process. The delivery does not count."""


def ending_of(outcome: HandlerOutcome, settlement: Settlement) -> Ending:
    """Return how a delivery ended, given its outcome and its settlement."""
    if isinstance(outcome, Returned):
        return Ending.ACKNOWLEDGED
    if isinstance(outcome, Stopped):
        return Ending.HANDED_BACK
    if isinstance(outcome, Expired) and not outcome.dead:
        return Ending.EXPIRED
    return Ending.RETRIED if settlement.how in {How.FAIL, How.SILENT} else Ending.DEAD


def failed(outcome: HandlerOutcome) -> bool:
    """Return whether the handler failed. A handler that raised `Again` did not."""
    match outcome:
        case Raised(error):
            return not isinstance(error, Again)
        case TimedOut() | Crashed():
            return True
    return False
