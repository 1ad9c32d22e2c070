"""Statistics of a journal."""

from __future__ import annotations

from typing import NamedTuple


class JournalStatistics(NamedTuple):
    """The statistics of ``INFO persistence``. Sizes are bytes of records, not of allocated space."""

    current_bytes: int
    base_bytes: int
    """The value of ``current_bytes`` at the start."""
    files: int
    fsyncs: int
    delayed_fsyncs: int
    durable_turn: int
    """The last turn that is known to be completely on disk. Not maintained with ``always``."""
    failure: str | None
    """Why nothing more is written until a restart."""
    refusal: str | None
    """Why the next file could not be created. Writes continue while this file has space."""
