"""What a journal tells of itself in figures."""

from __future__ import annotations

from typing import NamedTuple


class JournalStatistics(NamedTuple):
    """The figures of ``INFO persistence``. Sizes are bytes of records, not of allocated space."""

    current_bytes: int
    base_bytes: int
    """What it was at the start."""
    files: int
    fsyncs: int
    delayed_fsyncs: int
    durable_turn: int
    """The last turn of which everything is known to be on disk; ``always`` does not count."""
    failure: str | None
    """Why nothing more is written until restart."""
    refusal: str | None
    """Why the next file could not be made; writes go on while this one has room."""
