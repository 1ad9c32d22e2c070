"""Declared pipelines with one table, of each sink."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from tests.spark.chaos.driver_options import ENTRIES_A_BATCH, STREAM, DriverOptions, strike
from tests.spark.chaos.way import SCHEMA, Way, entries_copied

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Pipeline(Way):
    """A declared pipeline with one table."""

    sql = "SELECT * FROM raw"
    sink = 'path = "copy"'
    """The table's keys in the declaration; ``{url}`` is replaced by the store's url."""

    def __init__(self, name: str, reading: str = "minPartitions = 2") -> None:
        self.name = name
        self._reading = reading

    def follow(
        self, spark: SparkSession, options: DriverOptions, finish: threading.Event | None
    ) -> None:
        from headwater.spark.pipeline import load, run

        run(
            load(self._file(options)),
            once=finish is None,
            stop=finish,
            report=lambda *_line: None,
        )

    def _file(self, options: DriverOptions) -> Path:
        file = options.place / f"{self.name}.toml"
        partial = options.place / f".{self.name}.toml.{os.getpid()}"
        partial.write_text(
            f"""
            [trigger]
            interval = "50ms"

            [source.raw]
            url = "{options.url}"
            stream = "{STREAM}"
            schema = "{SCHEMA}"
            maxEntriesPerTrigger = {ENTRIES_A_BATCH}
            {self._reading}

            [table.copy]
            mode = "append"
            sql = "{self.sql}"
            {self.sink.format(url=options.url)}
            """
        )
        partial.replace(file)  # a killed run leaves no partial file
        return file

    def die_between_sink_and_commit(self, options: DriverOptions, jvm: int) -> None:
        sink = self._sink_class()
        write = sink.write

        def write_and_die(self: Any, frame: Any, batch: Any) -> Any:
            rows = write(self, frame, batch)
            die_after = options.die_after
            if die_after is not None and batch.number >= die_after and rows > 0:
                strike(options.victim, jvm=jvm, python=os.getpid())
            return rows

        sink.write = write_and_die

    @abstractmethod
    def _sink_class(self) -> Any:
        """Return the `AppendSink` class of the table."""

    def checkpoint(self, directory: Path) -> Path:
        return directory / "copy" / "_headwater" / "checkpoint"


class ParquetPipeline(Pipeline):
    """Into Parquet files and a manifest."""

    def _sink_class(self) -> Any:
        from headwater.spark.pipeline.sinks.parquet import AppendTable

        return AppendTable

    def ids(self, directory: Path, client: redis.Redis) -> Counter[str]:
        import pyarrow.dataset as ds

        if not (directory / "copy").exists():
            return Counter()
        table = ds.dataset(str(directory / "copy"), format="parquet").to_table()
        return Counter(table.column("id").to_pylist() if "id" in table.column_names else [])


class GroupPipeline(ParquetPipeline):
    """The same as the only member of a group."""

    kinds = ("driver", "executor", "commit", "store", "twice")


class DeltaPipeline(Pipeline):
    """Into a table of Delta Lake, with the batch in its application transaction."""

    sink = 'sink = "delta"\npath = "copy"'

    def _sink_class(self) -> Any:
        from headwater.spark.pipeline.sinks.delta import DeltaAppend

        return DeltaAppend

    def ids(self, directory: Path, client: redis.Redis) -> Counter[str]:
        from deltalake import DeltaTable

        if not (directory / "copy" / "_delta_log").exists():
            return Counter()
        table = DeltaTable(str(directory / "copy")).to_pyarrow_table(columns=["id"])
        return Counter(table.column("id").to_pylist())


class StreamPipeline(Pipeline):
    """Into another stream, in a transaction for each batch."""

    # As `entry`: an `id` would become the new entry's id, which is unique in a stream anyway.
    sql = "SELECT id AS entry, n, text FROM raw"
    sink = 'sink = "stream"\nurl = "{url}"\nstream = "copy"\ncheckpoint = "checkpoint"'

    def _sink_class(self) -> Any:
        from headwater.spark.pipeline.sinks.stream import StreamTable

        return StreamTable

    def checkpoint(self, directory: Path) -> Path:
        return directory / "checkpoint"

    def ids(self, directory: Path, client: redis.Redis) -> Counter[str]:
        return entries_copied(client)
