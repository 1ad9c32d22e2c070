"""Removes the consumers that crashed workers left behind, once an hour.

Each start of a worker adds a consumer, and only a clean stop removes it. Without this module, the consumers of a
group would accumulate.
"""

from __future__ import annotations

import logging

from headwater.errors import HeadwaterError
from headwater.groups.membership.consumers import reap
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation
from headwater.worker.store.clocks import Timers

log = logging.getLogger("headwater.worker")

REAP_SECONDS = 3_600.0


class Reaping:
    """Removes consumers of one group that own nothing and were not seen for a day."""

    def __init__(self, clock: Timers) -> None:
        self._clock = clock
        self._due = clock.monotonic() + REAP_SECONDS

    def if_due(self, member: Member) -> Operation[None]:
        """Remove these consumers, at most once an hour. After a refusal, try again an hour later."""
        now = self._clock.monotonic()
        if now < self._due:
            return
        self._due = now + REAP_SECONDS
        try:
            removed = yield from reap(member)
        except HeadwaterError as error:
            log.debug("expired consumers of group %s were not removed: %s", member.group, error)
            return
        if removed:
            log.info(
                "removed consumers of group %s of %s that owned nothing and were not seen for a day: %s",
                member.group,
                member.stream,
                ", ".join(removed),
            )
