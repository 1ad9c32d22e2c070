"""Settings of the data directory and its journal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headwater.config.kinds import I32, MIB, Duration, Integer, Kind, Memory, Text, parse_integer
from headwater.config.setting import ONLY_AT_START, PROTECTED, EmbeddedUse, setting

FsyncPolicy = Literal["everysec", "always", "no"]


class Directory(Text):
    """A directory, reported as an absolute path. A relative one is relative to the one that an earlier
    line set: as in Redis, a line changes to it."""

    def changed(self, current: str, text: str) -> str:
        return str(Path(current) / text)

    def report(self, value: str) -> str:
        return str(Path(value).absolute())


SavePoint = tuple[int, int]
"""Seconds, and the number of changes within them that makes a copy due."""


class SavePoints(Kind[tuple[SavePoint, ...]]):
    """Pairs of seconds and changes; none if empty."""

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
    """What is written to disk, and when."""

    dir: str = setting(".", "Data directory.", kind=Directory(), fixed_after_start=PROTECTED)
    appendonly: bool = setting(
        True,
        "Whether to write a journal.",
        fixed_after_start=ONLY_AT_START,
    )
    save: tuple[SavePoint, ...] = setting(
        ((3600, 1), (300, 100), (60, 10000)),
        "Save points, each seconds and changes. With `appendonly no` the data is kept nevertheless, in a "
        "journal that the operating system flushes, unless this is empty.",
        kind=SavePoints(),
    )
    appendfsync: FsyncPolicy = setting(
        "everysec",
        "When the journal is flushed to disk: always before each reply, everysec once a second, no "
        "when the operating system decides.",
        embedded=EmbeddedUse.ON_DISK,
    )
    auto_aof_rewrite_percentage: int = setting(
        100,
        "By how many percent of the last image the journal may grow before the next image is written, "
        "which replaces the journal's older files; 0: never by itself.",
        kind=Integer(0, I32),
        embedded=EmbeddedUse.ON_DISK,
    )
    auto_aof_rewrite_min_size: int = setting(
        64 * MIB,
        "Least size of the last image and the journal together at which the next image is written.",
        kind=Memory(),
        embedded=EmbeddedUse.ON_DISK,
    )
    journal_retention: int = setting(
        0,
        "For how long, in seconds or with the unit s, m, h or d, what an image replaces is kept, so that "
        "`headwater history` and `headwater restore --at` reach back that far; 0: not at all.",
        kind=Duration(0, I32),
        embedded=EmbeddedUse.ON_DISK,
    )
    checkpoint_io_limit: int = setting(
        64 * MIB,
        "Maximum bytes a second that are read and written to move older entries out of files that are "
        "mostly deleted.",
        kind=Memory(1),
        embedded=EmbeddedUse.ON_DISK,
    )

    @property
    def keeps_data(self) -> bool:
        """Whether data is written to disk."""
        return self.appendonly or bool(self.save)

    @property
    def journal_policy(self) -> FsyncPolicy:
        """When the journal is flushed. Save points without ``appendonly`` promise no more than ``no``."""
        return self.appendfsync if self.appendonly else "no"
