"""Removes the consumers that crashed workers left behind, once an hour.

Each start of a worker adds a consumer, and only a clean stop removes it. Without this, the consumers of a group
would accumulate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.groups.membership.consumers import reap
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Exchanging, perform
from headwater.worker.store.clocks import Timers, sleep
from headwater.worker.store.connections import lost_connection
from headwater.worker.store.waiting import cancelled

if TYPE_CHECKING:
    import redis.asyncio

log = logging.getLogger("headwater.worker")

REAP_SECONDS = 3_600.0


async def reap_regularly(
    client: Callable[[], redis.asyncio.Redis | Exchanging],
    member: Callable[[], Member | None],
    clock: Timers,
) -> None:
    """Remove, every hour, consumers of the member's group that own nothing and were not seen for a day. Runs until it
    is cancelled. After an error it tries again an hour later."""
    failures: tuple[type[Exception], ...] = (HeadwaterError, *lost_connection())
    while not cancelled():
        await sleep(clock, REAP_SECONDS, upkeep=True)
        who = member()
        if who is None:
            continue
        try:
            removed = await perform(client(), reap(who))
        except failures as error:
            log.debug("expired consumers of group %s were not removed: %s", who.group, error)
            continue
        if removed:
            log.info(
                "removed consumers of group %s of %s that owned nothing and were not seen for a day: %s",
                who.group,
                who.stream,
                ", ".join(removed),
            )
