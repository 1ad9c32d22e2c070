"""The ranges of entries that one task reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from headwater.common.model import IDRange


@dataclass(frozen=True)
class EntryRange:
    """The entries of ``stream`` in ``ids``. Reading reports if there are not exactly ``count`` of them."""

    stream: str
    ids: IDRange
    count: int


@dataclass(frozen=True)
class EntryTask(InputPartition):
    """The ranges that one task reads, one after the other. Those of a stream are in the order of their ids."""

    ranges: tuple[EntryRange, ...]
