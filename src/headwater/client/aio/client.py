"""redis-py's client for asyncio, with one property more."""

from __future__ import annotations

import redis.asyncio

from headwater.client.embedded_opening import recovery_of
from headwater.journal.report import RecoveryReport


class AsyncClient(redis.asyncio.Redis):
    """``redis.asyncio.Redis`` with one attribute more; `headwater.aio.connect` returns it."""

    @property
    def recovery(self) -> RecoveryReport | None:
        """What opening the store in this process recovered, cut off or found odd; None for a client of a
        server, whose INFO has the numbers."""
        return recovery_of(self)
