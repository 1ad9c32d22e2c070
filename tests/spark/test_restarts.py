"""A query that is stopped between any two steps continues from its checkpoint: each entry once (I10).

Spark's steps in a batch are: initialOffset (new queries only), latestOffset, the offset log, partitions,
read, the sink, the commit log. `Life` executes them one by one, on every server and without Spark. The tests
below it do the same with Spark itself: they remove from a checkpoint what a kill at that step would not have
written.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from headwater.spark.log_mode.offsets import positions_of
from headwater.spark.log_mode.streaming import StreamReader
from headwater.spark.source import HeadwaterSource
from tests.spark.queries import SCHEMA
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.peer

STEPS: Final = (
    "initialOffset",
    "latestOffset",
    "offset logged",
    "partitions planned",
    "rows read",
    "sink written",
    "commit logged",
)


class Stopped(Exception):
    """The process has ended here."""


class Checkpoint:
    """The contents of the disk: Spark's two logs, and a sink that keys on the batch's number."""

    def __init__(self) -> None:
        self.offsets: list[str] = []
        self.commits = -1
        self.sink: dict[int, list[str]] = {}

    def held(self) -> Counter[str]:
        return Counter(row for rows in self.sink.values() for row in rows)


class Life:
    """One process of a query; ``stop`` names the batch and the step after which it ends."""

    def __init__(
        self,
        shop: Shop,
        disk: Checkpoint,
        *,
        stop: tuple[int, str] | None = None,
        available_now: bool = False,
        **options: str,
    ) -> None:
        given = {"url": shop.url, "stream": "s,t", "maxEntriesPerTrigger": "40", **options}
        self.reader: StreamReader = HeadwaterSource(given).streamReader(SCHEMA)
        self.disk, self.stop, self.available_now = disk, stop, available_now

    def run(self) -> None:
        """Run all batches, or those up to ``stop``."""
        try:
            if self.available_now:
                self.reader.prepareForTriggerAvailableNow()
            limit = self.reader.getDefaultReadLimit()
            offsets = self.disk.offsets
            start = json.loads(offsets[-1]) if offsets else self._initial()
            if len(offsets) - 1 > self.disk.commits:
                self._execute(start, len(offsets) - 1)
            while True:
                end = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
                self._passed(len(offsets), "latestOffset")
                if end == start:
                    return
                offsets.append(json.dumps(end))
                self._passed(len(offsets) - 1, "offset logged")
                self.reader.commit(start)
                self._execute(end, len(offsets) - 1)
                start = end
        finally:
            self.reader.stop()

    def _initial(self) -> Any:
        self.reader.initialOffset()
        start = json.loads(json.dumps(self.reader.initialOffset()))
        self._passed(0, "initialOffset")
        return start

    def _execute(self, end: Any, batch: int) -> None:
        partitions = self.reader.partitions({"not": "used"}, end)
        self._passed(batch, "partitions planned")
        executor = pickle.loads(pickle.dumps(self.reader))
        rows = [
            f"{stream} {id_}"
            for partition in pickle.loads(pickle.dumps(partitions))
            for page in executor.read(partition)
            for stream, id_ in zip(
                page.column("stream").to_pylist(), page.column("id").to_pylist(), strict=True
            )
        ]
        self._passed(batch, "rows read")
        there = self.disk.sink.setdefault(batch, rows)
        assert Counter(there) == Counter(rows), f"batch {batch} differs from the first run"
        self._passed(batch, "sink written")
        self.disk.commits = batch
        self._passed(batch, "commit logged")

    def _passed(self, batch: int, step: str) -> None:
        if self.stop == (batch, step):
            raise Stopped


def fill(shop: Shop, numbers: range) -> None:
    shop.add("s", numbers)
    shop.add("t", [number for number in numbers if number % 3 == 0])


def every(shop: Shop) -> Counter[str]:
    return Counter(f"{stream} {number}-1" for stream in "st" for number in shop.numbers(stream))


@pytest.mark.parametrize("available_now", [False, True], ids=["interval", "available now"])
@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("step", STEPS)
def test_a_query_stopped_after_any_step_continues_and_reads_each_entry_once(
    shop: Shop, step: str, batch: int, available_now: bool
) -> None:
    # Given a query over two streams that ended after this step of this batch
    fill(shop, range(1, 61))
    disk = Checkpoint()
    stopped = (batch if step != "initialOffset" else 0, step)
    with pytest.raises(Stopped):
        Life(shop, disk, stop=stopped, available_now=available_now).run()

    # When entries are added, committed ones are trimmed, and the query is started again
    fill(shop, range(61, 101))
    added = every(shop)
    if disk.commits >= 0:
        ends = json.loads(disk.offsets[disk.commits])
        for stream, place in positions_of(ends).items():
            shop.client.xtrim(stream, minid=str(place.id), approximate=False)
    Life(shop, disk, available_now=available_now).run()

    # Then no entry is missing or duplicate, and another start has nothing to do
    assert disk.held() == added
    batches = len(disk.offsets)
    Life(shop, disk, available_now=available_now).run()
    assert len(disk.offsets) == batches


@pytest.mark.parametrize("step", STEPS[2:])
def test_latest_is_determined_by_the_first_batch_whatever_step_it_ended_at(
    shop: Shop, step: str
) -> None:
    fill(shop, range(1, 11))
    disk = Checkpoint()
    with pytest.raises(Stopped):
        Life(shop, disk, stop=(0, step), startingId="latest").run()

    fill(shop, range(11, 21))
    Life(shop, disk, startingId="latest").run()

    assert disk.held() == every(shop) - Counter(
        {f"{stream} {number}-1": 1 for number in range(1, 11) for stream in "st"}
    )


@pytest.mark.parametrize("step", STEPS[2:])
def test_a_stream_that_a_pattern_found_is_read_once_from_its_first_entry(
    shop: Shop, step: str
) -> None:
    shop.add("part:a", range(1, 11))
    disk = Checkpoint()
    Life(shop, disk, stream="part:*").run()
    shop.add("part:b", range(1, 31))
    with pytest.raises(Stopped):
        Life(shop, disk, stop=(1, step), stream="part:*").run()

    shop.add("part:c", range(5, 15))
    Life(shop, disk, stream="part:*").run()

    assert disk.held() == Counter(
        [f"part:a {n}-1" for n in range(1, 11)]
        + [f"part:b {n}-1" for n in range(1, 31)]
        + [f"part:c {n}-1" for n in range(5, 15)]
    )


# --- with Spark -----------------------------------------------------------------------------------

ON_SPARK = [pytest.mark.spark, pytest.mark.slice, pytest.mark.xdist_group("spark")]
ONE_STORE = pytest.mark.parametrize("shop", ["headwater"], indirect=True)

Query = Callable[["SparkSession", Shop], "DataFrame"]


def source(spark: SparkSession, shop: Shop, stream: str) -> DataFrame:
    return (
        spark.readStream.format("headwater")
        .options(url=shop.url, stream=stream, maxEntriesPerTrigger="40")
        .schema("stream string, id string, timestamp timestamp, n bigint")
        .load()
    )


def one_source(spark: SparkSession, shop: Shop) -> DataFrame:
    return source(spark, shop, "s,t").selectExpr("concat(stream, ' ', id) AS row")


def union(spark: SparkSession, shop: Shop) -> DataFrame:
    both = source(spark, shop, "s").union(source(spark, shop, "t"))
    return both.selectExpr("concat(stream, ' ', id) AS row")


def join(spark: SparkSession, shop: Shop) -> DataFrame:
    left, right = source(spark, shop, "s"), source(spark, shop, "t")
    matched = left.alias("l").join(right.alias("r"), "n")
    return matched.selectExpr("concat('t ', r.id) AS row")


class Disk:
    """A checkpoint, and a sink that keys on the batch's number, as a kill leaves them."""

    def __init__(self, directory: Path, sink: dict[int, list[str]]) -> None:
        self.directory, self.sink = directory, sink

    def copy(self, directory: Path) -> Disk:
        shutil.copytree(self.directory, directory)
        return Disk(directory, dict(self.sink))

    def run(self, frame: DataFrame, trigger: dict[str, Any]) -> None:
        """Run a query until there is nothing left to read."""

        def write(rows: DataFrame, batch: int) -> None:
            found = sorted(row.row for row in rows.collect())
            there = self.sink.setdefault(batch, found)
            assert there == found, f"batch {batch} differs from the first run"

        writer = frame.writeStream.foreachBatch(write).trigger(**trigger)
        query = writer.option("checkpointLocation", str(self.directory)).start()
        try:
            if "availableNow" in trigger:
                query.awaitTermination()
            else:
                query.processAllAvailable()
        finally:
            query.stop()

    def last(self) -> int:
        return max(int(path.name) for path in (self.directory / "offsets").glob("[0-9]*"))

    def forget(self, log: str, batch: int) -> None:
        """Undo a batch's line of a log, as if Spark had died while it wrote it."""
        place = self.directory / log
        (place / str(batch)).rename(place / f".{batch}.0f5ee2a1-1d0f-4d31-ae0b-24ad0bb5e9d5.tmp")
        (place / f".{batch}.crc").unlink(missing_ok=True)

    def as_if_ended_after(self, step: str) -> None:
        batch = self.last()
        if step != "commit logged":
            self.forget("commits", batch)
        if step in {"offset logged", "latestOffset"}:
            del self.sink[batch]
        if step == "latestOffset":
            self.forget("offsets", batch)

    def held(self) -> Counter[str]:
        return Counter(row for rows in self.sink.values() for row in rows)


NOW: dict[str, Any] = {"availableNow": True}
SOON: dict[str, Any] = {"processingTime": "10 milliseconds"}
LEFT_BEHIND = ("latestOffset", "offset logged", "sink written", "commit logged")
"""The states that a kill can leave on disk; planning and reading write nothing."""


def expected(shop: Shop, query: Query) -> Counter[str]:
    rows = every(shop)
    return Counter(row for row in rows if row[0] == "t") if query is join else rows


class TestSpark:
    pytestmark = ON_SPARK

    @ONE_STORE
    @pytest.mark.parametrize(("query", "trigger"), [(one_source, NOW), (union, SOON)])
    def test_a_query_continues_from_the_checkpoint_that_each_step_leaves(
        self, spark: SparkSession, shop: Shop, tmp_path: Path, query: Query, trigger: dict[str, Any]
    ) -> None:
        fill(shop, range(1, 61))
        disk = Disk(tmp_path / "whole", {})
        disk.run(query(spark, shop), trigger)
        assert disk.last() > 0
        fill(shop, range(61, 71))

        for step in LEFT_BEHIND:
            copy = disk.copy(tmp_path / step.replace(" ", "-"))
            copy.as_if_ended_after(step)
            copy.run(query(spark, shop), trigger)
            assert copy.held() == expected(shop, query), step

    @ONE_STORE
    def test_a_join_of_two_streams_finds_each_pair_once(
        self, spark: SparkSession, shop: Shop, tmp_path: Path
    ) -> None:
        fill(shop, range(1, 61))
        disk = Disk(tmp_path / "whole", {})
        disk.run(join(spark, shop), NOW)
        fill(shop, range(61, 71))

        for step in ("offset logged", "sink written"):
            copy = disk.copy(tmp_path / step.replace(" ", "-"))
            copy.as_if_ended_after(step)
            copy.run(join(spark, shop), NOW)
            assert copy.held() == expected(shop, join), step

    @ONE_STORE
    def test_a_first_batch_that_was_only_logged_is_read(
        self, spark: SparkSession, shop: Shop, tmp_path: Path
    ) -> None:
        # Otherwise Spark takes a partial file of the first offset for another query's
        spark = spark.newSession()
        spark.conf.set("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
        fill(shop, range(1, 25))
        disk = Disk(tmp_path / "whole", {})
        disk.run(one_source(spark, shop), NOW)
        assert disk.last() == 0
        fill(shop, range(25, 41))

        for step in LEFT_BEHIND:
            copy = disk.copy(tmp_path / step.replace(" ", "-"))
            copy.as_if_ended_after(step)
            copy.run(one_source(spark, shop), NOW)
            assert copy.held() == every(shop), step
