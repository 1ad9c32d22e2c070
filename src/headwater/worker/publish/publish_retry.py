"""Decides whether and when publishing is repeated after an error."""

from __future__ import annotations

import time

from headwater.errors import StoreClosed
from headwater.groups.protocol.operation import Operation, Refused
from headwater.groups.protocol.store_errors import Remedy, Step, refused_credentials, remedy
from headwater.groups.settling.adding import may_be_added_later
from headwater.worker.store.connections import lost_connection, may_have_run

RECONNECT_SECONDS = 4.0
"""How long sending is repeated while the store cannot be reached. A restart takes less."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two attempts. They double from one to the next."""


class PublishRetry:
    """Decides whether and when to send again after an error.

    With ``repeatable``, an operation is repeated even if it may have been carried out.
    """

    def __init__(self, *, repeatable: bool) -> None:
        self.failed = False
        self._repeatable = repeatable
        self._until = time.monotonic() + RECONNECT_SECONDS
        self._pause = FIRST_PAUSE

    def pause(self, error: Exception) -> float | None:
        """Return the seconds to wait before the next attempt, or None if the error is final."""
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
    """Check that the store executes commands. While it loads its data, this raises redis-py's
    BusyLoadingError, which is handled as a refused connection."""
    yield [["PING"]]


def failures() -> tuple[type[Exception], ...]:
    """Return the errors of an attempt to send after which `PublishRetry` decides."""
    return (Refused, *lost_connection())


def wrong_server(error: Exception) -> bool:
    """Return whether the connection is to a server that refuses writes: a demoted primary. A new connection
    may reach its successor."""
    return isinstance(error, Refused) and remedy(error, Step.PUBLISH) is Remedy.RECONNECT
