"""redis-py's client for asyncio, with the property `AsyncClient.recovery`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redis.asyncio

if TYPE_CHECKING:
    from headwater.journal.log.report import RecoveryReport


class AsyncClient(redis.asyncio.Redis):
    """``redis.asyncio.Redis`` with the property `recovery`; `headwater.aio.connect` returns it."""

    @property
    def recovery(self) -> RecoveryReport | None:
        """Report of what was recovered, cut off or found suspicious when the embedded store was opened.
        None for a client of a server, whose INFO has the numbers."""
        from headwater.client.embedded_opening import recovery_of  # the server's modules, 80 ms

        return recovery_of(self)
