"""The setting of the memory limit."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.kinds import Memory
from headwater.config.setting import setting


@dataclass(kw_only=True)
class MemoryConfig:
    """How much memory may be used."""

    maxmemory: int = setting(
        0,
        "Memory above which commands that take more are refused (OOM), while reads, settlements, "
        "deletions and trims go on; 0: no limit. Entries go to disk before that: at most half of it is "
        "for stream-hot-bytes.",
        kind=Memory(),
    )
