"""The ranges of entries that one task reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from headwater.common.model import IDRange


@dataclass(frozen=True)
class EntryRange:
    """The entries of ``stream`` in ``ids``. A reader that does not find exactly ``count`` entries reports it."""

    stream: str
    ids: IDRange
    count: int


@dataclass(frozen=True)
class EntryTask(InputPartition):
    """The ranges that one task reads, one after another. Ranges of the same stream are in the order of ids."""

    ranges: tuple[EntryRange, ...]
