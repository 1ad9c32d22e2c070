"""redis-py's client, with one property more."""

from __future__ import annotations

import redis

from headwater.client.embedded_opening import recovery_of
from headwater.journal.report import RecoveryReport


class Client(redis.Redis):
    """redis-py's client, and what opening the store found."""

    @property
    def recovery(self) -> RecoveryReport | None:
        """What was recovered when the store in this process was opened, and what was cut off or odd
        about its files; None for a client of a server, whose INFO has the numbers.

        >>> from headwater import connect
        >>> with connect("headwater://memory") as client:
        ...     client.recovery
        RecoveryReport(groups=0, cuts=(), notes=())
        """
        return recovery_of(self)
