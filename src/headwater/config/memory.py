"""The setting of the memory limit."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.kinds import Memory
from headwater.config.setting import setting


@dataclass(kw_only=True)
class MemoryConfig:
    """Setting that limits the memory of the store."""

    maxmemory: int = setting(
        0,
        "Memory limit; 0: none. Above it, commands that need more memory are refused (OOM); reads, "
        "settlements without results, deletions and trims still work. Entries move to disk before that: "
        "stream-hot-bytes is at most half of the limit.",
        kind=Memory(),
    )
