"""Settings of the data directory and its journal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headwater.config.kinds import I32, MIB, Duration, Integer, Kind, Memory, Text, parse_integer
from headwater.config.setting import ONLY_AT_START, PROTECTED, EmbeddedUse, setting

FsyncPolicy = Literal["everysec", "always", "no"]


class Directory(Text):
    """A directory, reported as an absolute path. As in Redis, each ``dir`` line changes to its directory, so a
    relative path is relative to the directory of the previous line."""

    def changed(self, current: str, text: str) -> str:
        return str(Path(current) / text)

    def report(self, value: str) -> str:
        return str(Path(value).absolute())


SavePoint = tuple[int, int]
"""A period in seconds, and the number of changes within the period after which Redis saves a copy."""


class SavePoints(Kind[tuple[SavePoint, ...]]):
    """Pairs of seconds and changes; an empty text means no save points."""

    several = True

    def parse(self, text: str) -> tuple[SavePoint, ...]:
        words = text.split()
        try:
            numbers = [parse_integer(word) for word in words]
        except ValueError:
            numbers = [0]
        points = tuple(zip(numbers[::2], numbers[1::2], strict=False))
        if len(numbers) % 2 or any(seconds < 1 or changes < 0 for seconds, changes in points):
            raise ValueError("Invalid save parameters")
        return points

    def spell(self, value: tuple[SavePoint, ...]) -> str:
        return " ".join(f"{seconds} {changes}" for seconds, changes in value)


@dataclass(kw_only=True)
class StorageConfig:
    """Settings of the data directory: which files are written, and when they are flushed."""

    dir: str = setting(".", "Data directory.", kind=Directory(), fixed_after_start=PROTECTED)
    appendonly: bool = setting(
        True,
        "Write a journal.",
        fixed_after_start=ONLY_AT_START,
    )
    save: tuple[SavePoint, ...] = setting(
        ((3600, 1), (300, 100), (60, 10000)),
        "Save points, each seconds and changes. With `appendonly no` and at least one save point, data is "
        "still written to a journal, which the operating system flushes.",
        kind=SavePoints(),
    )
    appendfsync: FsyncPolicy = setting(
        "everysec",
        "Flushing of the journal to disk: before each reply (always), once a second (everysec), or "
        "when the operating system decides (no).",
        embedded=EmbeddedUse.ON_DISK,
    )
    auto_aof_rewrite_percentage: int = setting(
        100,
        "Growth of the journal, in percent of the last image, at which a new image is written and "
        "replaces the journal's older files; 0: no image is written automatically.",
        kind=Integer(0, I32),
        embedded=EmbeddedUse.ON_DISK,
    )
    auto_aof_rewrite_min_size: int = setting(
        64 * MIB,
        "Minimum size of the last image and the journal together at which a new image is written.",
        kind=Memory(),
        embedded=EmbeddedUse.ON_DISK,
    )
    journal_retention: int = setting(
        0,
        "Time for which files that a new image replaces are kept, in seconds or with the unit s, m, h or "
        "d. `headwater history` and `headwater restore --at` reach back that far. 0: not kept.",
        kind=Duration(0, I32),
        embedded=EmbeddedUse.ON_DISK,
    )
    checkpoint_io_limit: int = setting(
        64 * MIB,
        "Maximum bytes per second read and written to compact segments: to move entries out of files "
        "in which most entries are deleted.",
        kind=Memory(1),
        embedded=EmbeddedUse.ON_DISK,
    )

    @property
    def keeps_data(self) -> bool:
        """True if data is written to disk."""
        return self.appendonly or bool(self.save)

    @property
    def journal_policy(self) -> FsyncPolicy:
        """Flush policy of the journal: ``no`` for a journal that is written only because of save points."""
        return self.appendfsync if self.appendonly else "no"
