"""Settings of the data directory and its journal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headwater.config.kinds import Text
from headwater.config.setting import PROTECTED, EmbeddedUse, setting

FsyncPolicy = Literal["everysec", "always", "no"]


class Directory(Text):
    """A directory, which is reported with its absolute path."""

    def report(self, value: str) -> str:
        return str(Path(value).absolute())


@dataclass(kw_only=True)
class StorageConfig:
    """What is kept on disk, and when."""

    dir: str = setting(".", "Data directory.", kind=Directory(), fixed_after_start=PROTECTED)
    appendonly: bool = setting(
        True,
        "Whether there is a journal at all.",
        fixed_after_start="can't set immutable config; whether there is a journal is decided at the "
        "start",
    )
    appendfsync: FsyncPolicy = setting(
        "everysec",
        "When the journal is made durable: before each reply, once a second, or when the system "
        "likes.",
        embedded=EmbeddedUse.ON_DISK,
    )
