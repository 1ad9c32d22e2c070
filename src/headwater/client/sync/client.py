"""redis-py's client, with one property more."""

from __future__ import annotations

import redis

from headwater.client.embedded_opening import recovery_of
from headwater.journal.report import RecoveryReport


class Client(redis.Redis):
    """``redis.Redis`` with one attribute more; `headwater.connect` returns it."""

    @property
    def recovery(self) -> RecoveryReport | None:
        """What opening the store in this process recovered, cut off or found odd; None for a client of a
        server, whose INFO has the numbers.

        >>> from headwater import connect
        >>> with connect("headwater://memory") as client:
        ...     client.recovery
        RecoveryReport(groups=0, cuts=(), notes=())
        """
        return recovery_of(self)
