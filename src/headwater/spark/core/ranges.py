"""What one task reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from headwater.model import IDRange


@dataclass(frozen=True)
class EntryRange(InputPartition):
    """The entries of ``stream`` in ``ids``: exactly ``count``, or the reader says what is missing."""

    stream: str
    ids: IDRange
    count: int
