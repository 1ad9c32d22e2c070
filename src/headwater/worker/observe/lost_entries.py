"""Counts and logs entries that were deleted or trimmed before they were handled."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headwater.worker.declare.statistics import Counters

log = logging.getLogger("headwater.worker")

SHOWN = 5
"""Maximum number of ids that a warning shows."""


class Losses:
    """Records the entries that one consumer of one process found lost, and counts them in ``counters``."""

    def __init__(self, stream: str, group: str, counters: Counters) -> None:
        self.stream = stream
        self.group = group
        self.counters = counters

    def pending(self, ids: Sequence[bytes]) -> None:
        """Record entries that were pending and are gone from the stream."""
        if not ids:
            return
        self.counters.gone_pending += len(ids)
        shown = b", ".join(ids[:SHOWN]).decode()
        log.warning(
            "%d %s of %s lost: group %s had them pending, and they were deleted or trimmed "
            "from the stream before they were settled: %s%s (%d since the start). Raise the "
            "stream's maxlen, or find out which client deletes them.",
            len(ids),
            "entry" if len(ids) == 1 else "entries",
            self.stream,
            self.group,
            shown,
            ", …" if len(ids) > SHOWN else "",
            self.counters.gone_pending,
        )

    def unread(self, count: int) -> None:
        """Record the number of entries that were gone before the group read them."""
        if not count:
            return
        self.counters.gone_unread += count
        log.warning(
            "%d %s of %s lost: trimmed or deleted before group %s read them (%d since the start). If "
            "maxlen trimmed them, the group is too slow: raise maxlen, or add workers. Otherwise find out which "
            "client deletes them.",
            count,
            "entry" if count == 1 else "entries",
            self.stream,
            self.group,
            self.counters.gone_unread,
        )
