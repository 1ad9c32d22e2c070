"""redis-py's client, with the property `Client.recovery`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redis

if TYPE_CHECKING:
    from headwater.journal.log.report import RecoveryReport


class Client(redis.Redis):
    """``redis.Redis`` with the property `recovery`; `headwater.connect` returns it."""

    @property
    def recovery(self) -> RecoveryReport | None:
        """Report of what was recovered, cut off or found suspicious when the embedded store was opened.
        None for a client of a server, whose INFO has the numbers.

        >>> from headwater import connect
        >>> with connect("headwater://memory") as client:
        ...     client.recovery
        RecoveryReport(groups=0, cuts=(), notes=())
        """
        from headwater.client.embedded_opening import recovery_of  # the server's modules, 80 ms

        return recovery_of(self)
