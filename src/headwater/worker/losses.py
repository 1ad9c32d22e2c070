"""Entries that vanished from a stream before they were handled: counted and said, never silence."""

from __future__ import annotations

import logging
from collections.abc import Sequence

log = logging.getLogger("headwater.worker")

SHOWN = 5
"""Ids that a warning shows; its number says how many there are."""


class Losses:
    """What one consumer of one process saw vanish. The counts are since its start."""

    def __init__(self, stream: str, group: str) -> None:
        self.stream = stream
        self.group = group
        self.gone_pending = 0
        """Entries deleted or trimmed while they were pending."""
        self.gone_unread = 0
        """Entries deleted or trimmed before the group read them; at least so many."""

    def pending(self, ids: Sequence[bytes]) -> None:
        """These were pending and are gone from the stream."""
        if not ids:
            return
        self.gone_pending += len(ids)
        shown = b", ".join(ids[:SHOWN]).decode()
        log.warning(
            "%d %s of %s lost: group %s had them pending, and they were deleted or trimmed "
            "from the stream before they were settled: %s%s (%d since the start). Raise the "
            "stream's maxlen, or look for who deletes.",
            len(ids),
            "entry" if len(ids) == 1 else "entries",
            self.stream,
            self.group,
            shown,
            ", …" if len(ids) > SHOWN else "",
            self.gone_pending,
        )

    def unread(self, count: int) -> None:
        """So many were gone before anybody of the group read them."""
        if not count:
            return
        self.gone_unread += count
        log.warning(
            "%d %s of %s lost: trimmed or deleted before group %s read them (%d since the start). The "
            "group is slower than the stream's maxlen allows: raise maxlen, or add workers.",
            count,
            "entry" if count == 1 else "entries",
            self.stream,
            self.group,
            self.gone_unread,
        )
