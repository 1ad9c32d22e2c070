"""The ways from a stream into a sink that a campaign tries, each as its users write it.

A way is used in two processes: the driver follows the stream by it, and the campaign looks at what
is in its sink. What is there must be each entry's id, once.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from tests.spark.chaos.errands import ENTRIES_A_BATCH, STREAM, Errand, strike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Way(ABC):
    """From the stream into one kind of sink."""

    name: str
    kinds: tuple[str, ...] = ("driver", "executor", "commit")
    """The kinds of lives (lives.py) that it is tried in."""

    @abstractmethod
    def follow(self, spark: SparkSession, errand: Errand, finish: threading.Event | None) -> None:
        """Follow the stream until ``finish`` is set; without one, read what there is and return."""

    @abstractmethod
    def die_between_sink_and_commit(self, errand: Errand, jvm: int) -> None:
        """Arrange the driver's death as ``errand`` says."""

    @abstractmethod
    def checkpoint(self, directory: Path) -> Path:
        """Where Spark keeps the query's progress."""

    @abstractmethod
    def ids(self, directory: Path, client: redis.Redis) -> Counter[str]:
        """The ids in the sink, as a reader sees them who knows nothing of us."""


class Pipeline(Way):
    """A declared pipeline of one table."""

    def __init__(self, name: str, sink: str) -> None:
        self.name = name
        self._sink = sink

    def follow(self, spark: SparkSession, errand: Errand, finish: threading.Event | None) -> None:
        from headwater.spark.pipeline import load, run

        run(
            load(self._file(errand)),
            once=finish is None,
            stop=finish,
            report=lambda *_line: None,
        )

    def _file(self, errand: Errand) -> Path:
        file = errand.place / f"{self.name}.toml"
        beside = errand.place / f".{self.name}.toml.{os.getpid()}"
        beside.write_text(
            f"""
            [trigger]
            interval = "50ms"

            [source.raw]
            url = "{errand.url}"
            stream = "{STREAM}"
            schema = "id string, n bigint, text string"
            maxEntriesPerTrigger = {ENTRIES_A_BATCH}
            minPartitions = 2

            [table.copy]
            mode = "append"
            sql = "SELECT * FROM raw"
            {self._sink}
            """
        )
        beside.replace(file)  # a killed run leaves no half of it
        return file

    def die_between_sink_and_commit(self, errand: Errand, jvm: int) -> None:
        sink = self._sink_class()
        write = sink.write

        def write_and_die(self: Any, frame: Any, batch: Any) -> Any:
            rows = write(self, frame, batch)
            die_after = errand.die_after
            if die_after is not None and batch.number >= die_after and rows > 0:
                strike(errand.victim, jvm=jvm, python=os.getpid())
            return rows

        sink.write = write_and_die

    @abstractmethod
    def _sink_class(self) -> Any:
        """The `AppendSink` of the table."""


class ParquetPipeline(Pipeline):
    """Into Parquet files and a manifest."""

    def __init__(self) -> None:
        super().__init__("parquet", 'path = "copy"')

    def _sink_class(self) -> Any:
        from headwater.spark.pipeline.sinks.parquet import AppendTable

        return AppendTable

    def checkpoint(self, directory: Path) -> Path:
        return directory / "copy" / "_headwater" / "checkpoint"

    def ids(self, directory: Path, client: redis.Redis) -> Counter[str]:
        import pyarrow.dataset as ds

        if not (directory / "copy").exists():
            return Counter()
        table = ds.dataset(str(directory / "copy"), format="parquet").to_table()
        return Counter(table.column("id").to_pylist() if "id" in table.column_names else [])


WAYS: dict[str, Way] = {way.name: way for way in (ParquetPipeline(),)}
