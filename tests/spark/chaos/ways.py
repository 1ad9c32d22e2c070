"""The ways from a stream into a sink that a campaign tries, each as users write it.

Two processes use a way: the driver follows the stream with it, and the campaign reads its sink, which must
contain each entry's id once.
"""

from __future__ import annotations

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import redis
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.spark.sink.streaming import StreamWriter
from headwater.spark.source import HeadwaterSource
from tests.spark.chaos.driver_options import ENTRIES_A_BATCH, STREAM, DriverOptions, strike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id string, n bigint, text string"


class Way(ABC):
    """A way from the stream into one kind of sink."""

    name: str
    kinds: tuple[str, ...] = ("driver", "executor", "commit")
    """The kinds of lives (lives.py) in which it is tried."""

    @abstractmethod
    def follow(
        self, spark: SparkSession, options: DriverOptions, finish: threading.Event | None
    ) -> None:
        """Follow the stream until ``finish`` is set; without it, read all entries and return."""

    @abstractmethod
    def die_between_sink_and_commit(self, options: DriverOptions, jvm: int) -> None:
        """Let the driver die as ``options`` says."""

    @abstractmethod
    def checkpoint(self, directory: Path) -> Path:
        """Return the directory of the query's checkpoint."""

    def taken(self, client: redis.Redis, batches: int) -> int:
        """Estimate how many entries have been read when so many batches have started."""
        return batches * ENTRIES_A_BATCH

    @contextmanager
    def alongside(self, url: str) -> Iterator[None]:
        """Run other consumers of the stream while the block runs."""
        yield

    @abstractmethod
    def ids(self, directory: Path, client: redis.Redis) -> Counter[str]:
        """Return the ids in the sink, as any reader sees them."""


class Query(Way):
    """A query without a pipeline, in log mode or as a member of a group."""

    def follow(
        self, spark: SparkSession, options: DriverOptions, finish: threading.Event | None
    ) -> None:
        frame = (
            spark.readStream.format("headwater")
            .options(url=options.url, stream=STREAM, **self.reading)
            .schema(SCHEMA)
            .load()
        )
        writer = self._written(frame, options).option(
            "checkpointLocation", str(self.checkpoint(options.place))
        )
        if finish is None:
            query = writer.trigger(availableNow=True).start()
        else:
            query = writer.trigger(processingTime="50 milliseconds").start()
        try:
            while not query.awaitTermination(1):
                if finish is not None and finish.is_set():
                    break
        finally:
            query.stop()

    reading: ClassVar[dict[str, str]] = {
        "maxEntriesPerTrigger": str(ENTRIES_A_BATCH),
        "minPartitions": "2",
    }

    @abstractmethod
    def _written(self, frame: DataFrame, options: DriverOptions) -> Any:
        """Return a writer for its rows."""

    def checkpoint(self, directory: Path) -> Path:
        return directory / "checkpoint"


class IntoStream(Query):
    """``writeStream.format("headwater")``, exactly once with stages."""

    name = "stream"

    def _written(self, frame: DataFrame, options: DriverOptions) -> Any:
        rows = frame.selectExpr("id AS entry", "n", "text")
        if options.die_after is None:
            writer = rows.writeStream.format("headwater")
        else:
            rows.sparkSession.dataSource.register(MortalSink)
            writer = rows.writeStream.format(MortalSink.name()).option("chaos", options.as_text())
            writer = writer.option("jvm", str(self._jvm)).option("python", str(os.getpid()))
        return writer.options(url=options.url, stream="copy")

    def die_between_sink_and_commit(self, options: DriverOptions, jvm: int) -> None:
        self._jvm = jvm

    def ids(self, directory: Path, client: redis.Redis) -> Counter[str]:
        return _entries_copied(client)


class MortalSink(HeadwaterSource):
    """A sink whose driver dies after a batch is published and before Spark knows."""

    @classmethod
    def name(cls) -> str:
        return "mortal"

    def streamWriter(self, schema: StructType, overwrite: bool) -> MortalWriter:  # noqa: N802
        own = {"chaos", "jvm", "python"}
        given = {name: value for name, value in self.options.items() if name not in own}
        writer = MortalWriter.of(given, schema, overwrite=overwrite)
        assert isinstance(writer, MortalWriter)
        writer.chaos = DriverOptions.parse(self.options["chaos"])
        writer.driver = int(self.options["jvm"]), int(self.options["python"])
        return writer


class MortalWriter(StreamWriter):
    """See `MortalSink`."""

    chaos: DriverOptions
    driver: tuple[int, int]

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        assert self.chaos.die_after is not None
        if batchId >= self.chaos.die_after:
            jvm, python = self.driver
            strike(self.chaos.victim, jvm=jvm, python=python)
            if self.chaos.victim == "python":
                # The JVM continues for a moment: it must not log the batch before it notices.
                os.kill(jvm, signal.SIGKILL)


class SharedGroup(Query):
    """A member of a group, together with a worker; its sink stores ids in a set."""

    name = "shared"
    kinds = ("driver", "executor")
    reading: ClassVar[dict[str, str]] = {
        "group": "g",
        "minIdleTime": "3s",
        "maxEntriesPerTrigger": str(ENTRIES_A_BATCH),
    }

    def _written(self, frame: DataFrame, options: DriverOptions) -> Any:
        def put(rows: DataFrame, _batch: int) -> None:
            with redis.Redis.from_url(options.url, protocol=2) as client:
                client.sadd("copy", "", *(row.id for row in rows.select("id").collect()))

        return frame.writeStream.foreachBatch(put)

    def die_between_sink_and_commit(self, options: DriverOptions, jvm: int) -> None:
        raise AssertionError("its sink stores ids in a set, so a batch cannot be there twice")

    def taken(self, client: redis.Redis, batches: int) -> int:
        count: Any = client.scard("copy")
        return int(count)

    @contextmanager
    def alongside(self, url: str) -> Iterator[None]:
        """Run a worker that uses only Redis's commands."""
        ended = threading.Event()

        def work() -> None:
            with redis.Redis.from_url(url, protocol=2) as client:
                while not ended.is_set():
                    with suppress(redis.ResponseError):  # no such stream or group yet
                        read: Any = client.xreadgroup("g", "worker", {STREAM: ">"}, count=7)
                        for id_ in [id_ for _stream, entries in read for id_, _body in entries]:
                            client.sadd("copy", id_)
                            client.xack(STREAM, "g", id_)
                    ended.wait(0.1)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def ids(self, directory: Path, client: redis.Redis) -> Counter[str]:
        members: Any = client.smembers("copy")
        return Counter(member.decode() for member in members if member)


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
        return _entries_copied(client)


def _entries_copied(client: redis.Redis) -> Counter[str]:
    entries: Any = client.xrange("copy")
    return Counter(fields[b"entry"].decode() for _id, fields in entries)


WAYS: dict[str, Way] = {
    way.name: way
    for way in (
        ParquetPipeline("parquet"),
        ParquetPipeline("group", reading='group = "g"\nminIdleTime = "3s"'),
        DeltaPipeline("delta"),
        StreamPipeline("pipeline-stream"),
        IntoStream(),
        SharedGroup(),
    )
}
