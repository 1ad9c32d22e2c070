"""Whether something that could not be sent is sent again, and when."""

from __future__ import annotations

import time

from headwater.errors import StoreClosed
from headwater.groups.adding import may_be_added_later
from headwater.groups.operation import Operation, Refused
from headwater.groups.store_errors import Remedy, Step, refused_credentials, remedy
from headwater.worker.connections import lost_connection, may_have_run

RECONNECT_SECONDS = 4.0
"""How long sending is tried again while the store cannot be reached: a restart takes less."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two attempts, doubling."""


class PublishRetry:
    """Decides whether something is sent again after its connection failed, and when.

    What is ``repeatable`` is sent again even if it may have been carried out.
    """

    def __init__(self, *, repeatable: bool) -> None:
        self.failed = False
        self._repeatable = repeatable
        self._until = time.monotonic() + RECONNECT_SECONDS
        self._pause = FIRST_PAUSE

    def pause(self, error: Exception) -> float | None:
        """Seconds to wait before the next attempt; None if there must be none."""
        self.failed = True
        if isinstance(error, Refused) and not may_be_added_later(error):
            return None
        if may_have_run(error) and not self._repeatable:
            return None
        if isinstance(error, (*refused_credentials(), StoreClosed)):
            return None
        left = self._until - time.monotonic()
        if left <= 0:
            return None
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return min(pause, left)


def reach() -> Operation[None]:
    """Return when the store executes commands. While it loads its data this raises redis-py's
    BusyLoadingError, as a refused connection would."""
    yield [["PING"]]


def failures() -> tuple[type[Exception], ...]:
    """What an attempt to send may end with; `PublishRetry` says whether there is another."""
    return (Refused, *lost_connection())


def leads_nowhere(error: Exception) -> bool:
    """Whether the connection leads to a server that takes no writes: a demoted primary. The address
    may lead to its successor."""
    return isinstance(error, Refused) and remedy(error, Step.PUBLISH) is Remedy.RECONNECT
