"""A query listener knows what the queries read, how far they are behind and what they lost."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater.spark
from headwater.errors import ListenError
from headwater.spark.query_listener import QueryListener, SourceLag, lag_of
from tests.spark.stores import Shop
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)


def offset(**streams: tuple[int, int]) -> dict[str, Any]:
    """Return an offset: for each stream from where and up to where, in entries and in seconds since 1970."""
    return {
        name: {"from": f"{a}000-0", "added_from": a, "to": f"{b}000-0", "added_to": b}
        for name, (a, b) in streams.items()
    }


def test_a_lag_is_what_all_streams_have_left() -> None:
    latest = offset(a=(0, 9), b=(0, 20), c=(0, 5))
    found = lag_of(offset(a=(0, 3), b=(0, 4)), offset(a=(3, 9), b=(4, 8), c=(0, 4)), latest, now=30)
    assert found == SourceLag(entries=13, seconds=26.0, lost=0)
    assert lag_of(None, offset(a=(0, 9)), latest, now=30) == SourceLag(0, None, 0)


def test_what_was_removed_unread_is_lost_once() -> None:
    assert lag_of(offset(a=(0, 3)), offset(a=(5, 9)), None, now=30).lost == 2
    assert lag_of(offset(a=(5, 9)), offset(a=(9, 9)), None, now=30).lost == 0
    # Where a query begins with the newest entry, it does not know how many came before.
    unknown = {"a": {"to": "3000-0", "added_to": 0}}
    assert lag_of(unknown, offset(a=(5, 9)), None, now=30).lost == 0


def test_a_group_reports_its_own_lag() -> None:
    end = {"group": "g", "consumer": "spark", "batch": 1, "streams": {}}
    streams: dict[str, Any] = {"a": {"lag": 3}, "b": {"lag": 4}}
    assert lag_of(None, end, {"group": "g", "streams": streams}, now=1) == SourceLag(7, None, 0)
    streams["b"]["lag"] = None
    assert lag_of(None, end, {"group": "g", "streams": streams}, now=1).entries is None


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[QueryListener]:
    made = headwater.spark.QueryListener(metrics=0)
    spark.streams.addListener(made)
    yield made
    spark.streams.removeListener(made)
    made.close()


def run(spark: SparkSession, shop: Shop, at: Path, **options: str) -> None:
    query = (
        spark.readStream.format("headwater")
        .options(url=shop.url, stream="s", **options)
        .load()
        .writeStream.format("noop")
        .queryName("orders")
        .option("checkpointLocation", str(at))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_query_is_reported_while_it_runs_and_after(
    spark: SparkSession,
    shop: Shop,
    tmp_path: Path,
    listener: QueryListener,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a query that reads in batches, and loses entries between two runs
    caplog.set_level(logging.INFO, "headwater.spark")
    shop.add("s", range(1, 31))
    run(spark, shop, tmp_path / "c", maxEntriesPerTrigger="10")
    shop.add("s", range(31, 41))
    shop.client.xtrim("s", minid="35-0", approximate=False)
    run(spark, shop, tmp_path / "c", failOnDataLoss="false")

    # Then the listener has the rows, the batches and the loss
    eventually(lambda: [q.rows for q in listener.queries()] == [36], "the progress arrives")
    eventually(lambda: not listener.queries()[0].running, "the end arrives")
    (facts,) = listener.queries()
    assert facts.name == "orders"
    assert facts.batches >= 4
    assert facts.lost == {0: 4}
    assert facts.lags[0].entries == 0
    assert "query orders: batch 0, 10 rows in" in caplog.text
    eventually(
        lambda: "4 entries were removed before they were read" in caplog.text, "the loss is logged"
    )

    # And so has Prometheus
    with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics") as reply:
        text = reply.read().decode()
    assert 'headwater_query_rows_total{query="orders"} 36.0' in text
    assert 'headwater_query_lost_entries_total{query="orders",source="0"} 4.0' in text
    assert 'headwater_query_lag_entries{query="orders",source="0"} 0.0' in text
    assert 'headwater_query_running{query="orders"} 0.0' in text


def test_a_port_in_use_is_an_error_that_names_it(listener: QueryListener) -> None:
    with pytest.raises(ListenError, match=rf"cannot listen at 127\.0\.0\.1:{listener.port}"):
        QueryListener(metrics=listener.port)
