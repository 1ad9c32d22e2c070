"""Statistics of a journal."""

from __future__ import annotations

from typing import NamedTuple


class JournalStatistics(NamedTuple):
    """The statistics of ``INFO persistence``. Sizes are bytes of records, not of allocated space."""

    current_bytes: int
    """The size of the image and of all records in journal files."""
    base_bytes: int
    """The value of ``current_bytes`` at the start, or when the last image was taken into use."""
    files: int
    """The number of journal files that have records, and of the one that is written."""
    fsyncs: int
    delayed_fsyncs: int
    durable_turn: int
    """The last turn that is known to be completely on disk. Not maintained with ``always``."""
    failure: str | None
    """Why nothing more is written until a restart."""
    flusher_late_s: float
    """For how long the thread that flushes has not looked for unsynced data, in seconds; 0 if there is none."""
    refusal: str | None
    """Why writes are refused now: the next file cannot be created, and this one is nearly full."""
