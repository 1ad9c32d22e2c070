"""redis-py's client for asyncio, with one property more."""

from __future__ import annotations

import redis.asyncio

from headwater.client.embedded_opening import recovery_of
from headwater.journal.report import RecoveryReport


class AsyncClient(redis.asyncio.Redis):
    """redis-py's client for asyncio, and what opening the store found."""

    @property
    def recovery(self) -> RecoveryReport | None:
        """What was recovered when the store in this process was opened, and what was cut off or odd
        about its files; None for a client of a server, whose INFO has the numbers."""
        return recovery_of(self)
