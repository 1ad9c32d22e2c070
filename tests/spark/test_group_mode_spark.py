"""Group mode inside Spark: shared with consumers, restarted, ended, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.messages.keys import reader_key
from headwater.spark.core.options import parse_options
from headwater.spark.group_mode.settling import settle_committed
from tests.spark.members import (
    CLAIM_AFTER_MS,
    Consumer,
    abandoned,
    idle,
    owners,
)
from tests.spark.stores import Shop
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)
"""Spark's part does not depend on the server; test_group_mode.py tests all of them."""


class Table:
    """A query into a sink that keys on the batch id, like a table of a pipeline."""

    def __init__(self, spark: SparkSession, shop: Shop, directory: Path) -> None:
        self.spark = spark
        self.checkpoint = directory / "checkpoint"
        self.options = {
            "url": shop.url,
            "stream": "s",
            "group": "g",
            "minIdleTime": f"{CLAIM_AFTER_MS}ms",
        }
        self.batches: dict[int, list[tuple[int, int]]] = {}
        self.fail = False

    def run(self, **changed: Any) -> None:
        """Run a query for the current entries."""
        query = self.start(availableNow=True, **changed)
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def start(self, *, availableNow: bool = False, **changed: Any) -> Any:  # noqa: N803
        frame = (
            self.spark.readStream.format("headwater")
            .options(**(self.options | changed))
            .schema("n bigint, _delivery_count int")
            .load()
        )
        writer = frame.writeStream.foreachBatch(self._write).option(
            "checkpointLocation", str(self.checkpoint)
        )
        if availableNow:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def _write(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = [(row.n, row._delivery_count) for row in frame.collect()]
        if self.fail:
            raise RuntimeError("between the sink's write and the commit")

    def rows(self) -> list[int]:
        return sorted(n for batch in self.batches.values() for n, _count in batch)


def test_entries_of_dead_consumers_are_in_the_table_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    # Given a group with a worker that settles and a consumer that died
    shop.add("s", range(1, 101))
    worker = Consumer(shop)
    done = worker.read(30)
    worker.settle(done)
    abandoned(shop, 30)
    table = Table(spark, shop, tmp_path)

    # When queries run until nothing is left, one of them failing between its write and its commit
    table.fail = True
    with pytest.raises(Exception, match="between the sink's write and the commit"):
        table.run(maxEntriesPerTrigger=25)
    table.fail = False
    first = dict(table.batches)
    table.run(maxEntriesPerTrigger=25)
    worker.close()

    # Then every entry is in one batch, the replayed batch is unchanged, and all are settled
    assert table.rows() == list(range(31, 101))
    assert table.batches[0] == first[0]
    counts = Counter(count for batch in table.batches.values() for _n, count in batch)
    assert counts == {2: 30, 1: 40}
    assert owners(shop) == {}


def test_a_stopped_query_continues_from_its_checkpoint(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 21))
    table = Table(spark, shop, tmp_path)
    query = table.start()
    eventually(lambda: len(table.rows()) == 20, "the first batch runs")
    eventually(lambda: not query.status["isTriggerActive"] or query.lastProgress, "it is committed")
    query.stop()

    # Its name is free immediately, and its last committed batch can be settled without it
    eventually(lambda: not shop.client.exists(reader_key("s", "g", "spark")), "the name is free")
    options = parse_options({"url": shop.url, "stream": "s", "group": "g"})
    settle_committed(options, table.checkpoint)
    assert owners(shop) == {}

    shop.add("s", [21])
    table.run()
    assert table.rows() == list(range(1, 22))


DRIVER = """
import sys, time
from headwater.spark.sessions import prepare_environment
prepare_environment(local=True)
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
def write(frame, number):
    frame.collect()
    print(spark.sparkContext._gateway.proc.pid, flush=True)
    time.sleep(600)
(
    spark.readStream.format("headwater").option("url", sys.argv[1]).option("stream", "s")
    .option("group", "g").option("minIdleTime", sys.argv[3]).schema("n bigint").load()
    .writeStream.foreachBatch(write).option("checkpointLocation", sys.argv[2]).start()
    .awaitTermination()
)
"""


@pytest.mark.slice
def test_a_killed_drivers_entries_are_claimed_by_others(shop: Shop, tmp_path: Path) -> None:
    # Given a query whose batch is running, and whose entries are renewed
    shop.add("s", range(1, 11))
    worker = Consumer(shop)
    arguments = [shop.url, str(tmp_path / "c"), f"{CLAIM_AFTER_MS}ms"]
    command = [sys.executable, "-c", DRIVER, *arguments]
    with (tmp_path / "errors").open("wb") as errors:
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
    try:
        assert driver.stdout is not None
        java = int(driver.stdout.readline())
        assert worker.read() == []
        assert set(owners(shop).values()) == {"spark"}

        # When the driver is killed
        os.kill(java, signal.SIGKILL)

        # Then its source's process renews nothing more
        eventually(lambda: idle(shop, 10, "spark"), "its leases expire")
        assert [one.delivery_count for one in worker.read()] == [2] * 10
    finally:
        driver.kill()
        driver.wait()
        if driver.stdout is not None:
            driver.stdout.close()
        worker.close()
