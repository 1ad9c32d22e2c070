"""Queries that users write with Spark: into a stream, from streams of a pattern, as a member of a group."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import redis
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.spark.sink.streaming import StreamWriter
from headwater.spark.source import HeadwaterSource
from tests.spark.chaos.driver_options import ENTRIES_A_BATCH, STREAM, DriverOptions, strike
from tests.spark.chaos.way import SCHEMA, Way, entries_copied

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Query(Way):
    """A query without a pipeline, in log mode or as a member of a group."""

    def follow(
        self, spark: SparkSession, options: DriverOptions, finish: threading.Event | None
    ) -> None:
        frame = (
            spark.readStream.format("headwater")
            .options(**({"url": options.url, "stream": STREAM} | self.reading))
            .schema(
                SCHEMA if "*" not in self.reading.get("stream", "") else f"stream string, {SCHEMA}"
            )
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
    rows = ("id AS entry", "n", "text")

    def _written(self, frame: DataFrame, options: DriverOptions) -> Any:
        rows = frame.selectExpr(*self.rows)
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
        return entries_copied(client)


class FromPattern(IntoStream):
    """The same from streams of a pattern, which come, and go after they were read.

    A planner that dies before it has noticed a removal leaves a query that cannot know whether the stream got
    more entries; so the query is told that streams are removed on purpose. The verdict finds what it lost.
    """

    name = "pattern"
    kinds = ("driver", "executor", "commit")
    reading: ClassVar[dict[str, str]] = IntoStream.reading | {
        "stream": "s.*",
        "ignoreDeletes": "true",
    }
    rows = ("concat(stream, ' ', id) AS entry", "n", "text")

    def __init__(self) -> None:
        self._current = 0

    def stream(self, chance: random.Random) -> str:
        """Return one of the newest streams; now and then a new one."""
        if chance.random() < 0.005:
            self._current += 1
        return f"s.{max(0, self._current - chance.randint(0, 3))}"

    def identity(self, stream: str, id_: str) -> str:
        return f"{stream} {id_}"

    def retire(self, client: redis.Redis, directory: Path) -> None:
        """Remove a stream that gets no more entries, if the last committed batch has read all of it."""
        numbers = [
            int(path.name) for path in (self.checkpoint(directory) / "commits").glob("[0-9]*")
        ]
        if not numbers:
            return
        offsets = self.checkpoint(directory) / "offsets" / str(max(numbers))
        try:
            read = json.loads(offsets.read_text().splitlines()[-1])
        except (FileNotFoundError, ValueError, IndexError):
            return
        for stream in [name for name in read if name.startswith("s.")]:
            old = int(stream.removeprefix("s.")) < self._current - 5
            info: Any = client.xinfo_stream(stream) if old and client.exists(stream) else None
            if info is not None and info["last-generated-id"].decode() == read[stream]["to"]:
                client.delete(stream)


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


WORKER = """
import sys, time, redis
url, stream, name = sys.argv[1:]
client = redis.Redis.from_url(url, protocol=2)
while True:
    try:
        read = client.xreadgroup("g", name, {stream: ">"}, count=7)
    except redis.ResponseError:  # no such stream or group yet
        read = []
    for id_ in [id_ for _stream, entries in read for id_, _body in entries]:
        time.sleep(0.01)
        client.sadd("copy", id_)
        client.xack(stream, "g", id_)
    time.sleep(0.05)
"""


MIN_IDLE_MS: Final = 3000


def _await_claimable(url: str) -> None:
    """Wait until the entries of killed workers can be claimed. The last run looks for such entries once: those
    that are not idle long enough by then stay pending, and are not lost."""
    with redis.Redis.from_url(url, protocol=2) as client, suppress(redis.ResponseError):  # no group
        while any(
            pending["consumer"].startswith(b"worker")
            and pending["time_since_delivered"] < MIN_IDLE_MS
            for pending in client.xpending_range(STREAM, "g", "-", "+", 10_000)
        ):
            time.sleep(0.1)


class SharedGroup(Query):
    """A member of a group, together with a worker; its sink stores ids in a set."""

    name = "shared"
    kinds = ("driver", "executor")
    reading: ClassVar[dict[str, str]] = {
        "group": "g",
        "minIdleTime": f"{MIN_IDLE_MS}ms",
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
        """Run workers that use only Redis's commands, and are killed with messages that they own."""
        ended = threading.Event()

        def work() -> None:
            chance = random.Random(0)
            number = 0
            while not ended.is_set():
                number += 1
                words = [sys.executable, "-c", WORKER, url, STREAM, f"worker-{number}"]
                with subprocess.Popen(words) as process:
                    ended.wait(chance.uniform(0.5, 3))
                    process.kill()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            _await_claimable(url)

    def ids(self, directory: Path, client: redis.Redis) -> Counter[str]:
        members: Any = client.smembers("copy")
        return Counter(member.decode() for member in members if member)
