"""The neighbours of an id."""

from __future__ import annotations

from headwater.common.model import StreamID, id_after, id_before


def before(id_: StreamID) -> StreamID:
    """Return the greatest id below ``id_``."""
    return StreamID(*id_before(*id_))


def after(id_: StreamID) -> StreamID:
    """Return the smallest id above ``id_``."""
    return StreamID(*id_after(*id_))
