"""Calls a reader as Spark does, for tests that check each step without Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from typing import Any

from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.ranges import EntryRange, EntryTask
from headwater.spark.log_mode.offsets import Offset
from headwater.spark.log_mode.streaming import StreamReader
from headwater.spark.source import HeadwaterSource
from tests.spark.stores import Shop

SCHEMA = parse_schema("stream string, id string, n bigint")


def ranges_of(partitions: Iterable[object]) -> list[EntryRange]:
    """Return what the tasks of a batch read."""
    return [one for task in partitions if isinstance(task, EntryTask) for one in task.ranges]


class Query:
    """Calls a reader as Spark does; offsets pass through JSON as in Spark's log."""

    def __init__(self, shop: Shop, *, log: list[Offset] | None = None, **options: str) -> None:
        given = {"url": shop.url, "stream": "s"} | options
        given = {name: text for name, text in given.items() if text}
        self.reader: StreamReader = HeadwaterSource(given).streamReader(SCHEMA)
        self.log = log if log is not None else []
        self.start: Offset = self.log[-1] if self.log else self.ask("initialOffset")

    def ask(self, method: str, *arguments: Any) -> Any:
        return json.loads(json.dumps(getattr(self.reader, method)(*arguments)))

    def plan(self) -> bool:
        """Plan and log a batch; return whether there was one."""
        limit = self.reader.getDefaultReadLimit()
        end = self.ask("latestOffset", self.start, limit)
        if end == self.start:
            return False
        self.log.append(end)
        self.start = end
        return True

    def read(self, end: Offset | None = None) -> list[int]:
        """Return the numbers of the batch that ends at ``end``, or of the last one."""
        partitions = self.reader.partitions({"what": "never used"}, end or self.log[-1])
        executor: StreamReader = pickle.loads(pickle.dumps(self.reader))
        return [
            number
            for partition in pickle.loads(pickle.dumps(partitions))
            for batch in executor.read(partition)
            for number in batch.column("n").to_pylist()
        ]

    def batches(self) -> list[list[int]]:
        """Return all remaining batches."""
        found = []
        while self.plan():
            found.append(self.read())
        return found
