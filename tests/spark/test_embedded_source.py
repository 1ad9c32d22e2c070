"""Spark reads a store of this process through a socket that only this user can open."""

from __future__ import annotations

import gc
import os
import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import redis

import headwater
import headwater.spark
from headwater.errors import ConfigError, HeadwaterError, StoreClosed
from headwater.spark import embedded
from headwater.spark.core.ddl import parse_schema
from headwater.spark.source import HeadwaterSource
from headwater.testing.clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

MEMORY = "headwater://memory/spark"


def path_of(url: str) -> Path:
    return Path(urlsplit(url).path)


def test_the_client_and_the_socket_use_one_store(tmp_path: Path) -> None:
    url = f"headwater://{tmp_path / 'shop'}"
    with headwater.connect(url, decode_responses=True) as shop:
        shop.xadd("orders", {"n": 1}, id="1-1")
        with headwater.spark.serving(url) as served, redis.Redis.from_url(served) as other:
            assert other.xlen("orders") == 1
            other.xadd("orders", {"n": 2}, id="2-1")
            assert [id_ for id_, _fields in shop.xrange("orders")] == ["1-1", "2-1"]
        shop.xadd("orders", {"n": 3}, id="3-1")
        assert shop.xlen("orders") == 3


def test_only_this_user_can_open_the_socket_and_its_directory_is_removed() -> None:
    with headwater.spark.serving(MEMORY) as url:
        path = path_of(url)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert len(bytes(path)) <= embedded.MAX_SOCKET_PATH_BYTES
    assert not path.parent.exists()


def test_serving_keeps_the_store_open_until_it_ends() -> None:
    shop = headwater.connect(MEMORY)
    shop.xadd("orders", {"n": 1})
    with headwater.spark.serving(MEMORY) as url:
        shop.close()
        with redis.Redis.from_url(url) as other:
            assert other.xlen("orders") == 1
    with headwater.connect(MEMORY) as fresh:
        assert fresh.xlen("orders") == 0
    with pytest.raises(StoreClosed):
        shop.xlen("orders")


def test_a_blocked_read_at_the_socket_is_woken_by_this_process() -> None:
    with (
        headwater.connect(MEMORY) as shop,
        headwater.spark.serving(MEMORY) as url,
        redis.Redis.from_url(url, socket_timeout=None) as other,
    ):
        got: list[Any] = []
        waiting = threading.Thread(
            target=lambda: got.append(other.xread({"orders": "0"}, block=60_000))
        )
        waiting.start()
        while not _blocked(shop):
            pass
        shop.xadd("orders", {"n": 1})
        waiting.join(60)
        assert len(got[0]) == 1


def _blocked(client: redis.Redis) -> bool:
    return int(client.info("clients")["blocked_clients"]) > 0


def test_an_entry_delayed_by_this_process_reaches_a_waiter_at_the_socket() -> None:
    """The deadline is set by a turn of this thread; the socket's loop must notice it."""
    with (
        headwater.connect(MEMORY) as shop,
        headwater.spark.serving(MEMORY) as url,
        redis.Redis.from_url(url) as other,
    ):
        shop.xgroup_create("orders", "g", id="0", mkstream=True)
        id_ = shop.xadd("orders", {"n": 1})
        shop.xreadgroup("g", "here", {"orders": ">"})
        got: list[Any] = []
        asked = ("XREADGROUP", "GROUP", "g", "there", "BLOCK", 60_000, "CLAIM", 600_000)
        waiting = threading.Thread(
            target=lambda: got.append(other.execute_command(*asked, "STREAMS", "orders", ">"))
        )
        waiting.start()
        while not _blocked(shop):
            pass
        shop.execute_command(
            "XSETTLE", "orders", "g", "here", "SILENT", "DELAY", 100, "IDS", 1, id_
        )
        waiting.join(60)
        assert len(got) == 1


def test_the_urls_database_is_used() -> None:
    with headwater.connect(f"{MEMORY}?db=3") as shop:
        shop.xadd("orders", {"n": 1})
        with (
            headwater.spark.serving(f"{MEMORY}?db=3") as url,
            redis.Redis.from_url(url) as other,
        ):
            assert other.xlen("orders") == 1


def test_a_private_memory_store_cannot_be_served() -> None:
    with (
        pytest.raises(ConfigError, match=r"Give it a name: headwater://memory/orders"),
        headwater.spark.serving("headwater://memory"),
    ):
        pass


def test_a_long_temporary_directory_is_avoided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with headwater.spark.serving(MEMORY) as url, redis.Redis.from_url(url) as other:
        assert other.ping()
    assert list(deep.iterdir()) == []


def test_threads_use_the_client_and_the_socket_at_the_same_time() -> None:
    with headwater.connect(MEMORY) as shop, headwater.spark.serving(MEMORY) as url:

        def fill(client: redis.Redis, stream: str) -> None:
            for number in range(300):
                client.xadd(stream, {"n": number})
                if number % 50 == 0:
                    gc.collect()

        outside = [redis.Redis.from_url(url) for _ in range(2)]
        fillers = [
            threading.Thread(target=fill, args=(client, f"s{place}"))
            for place, client in enumerate([shop, shop, *outside])
        ]
        for thread in fillers:
            thread.start()
        for thread in fillers:
            thread.join()
        assert [shop.xlen(f"s{place}") for place in range(4)] == [300] * 4
        for client in outside:
            client.close()


def test_a_store_with_its_own_clock_is_served(tmp_path: Path) -> None:
    clock = ManualClock()
    url = f"headwater://{tmp_path}"
    with (
        headwater.connect(url, clock=clock) as shop,
        headwater.spark.serving(url) as served,
        redis.Redis.from_url(served) as other,
    ):
        shop.xadd("orders", {"n": 1})
        assert other.xlen("orders") == 1


def test_serving_ends_with_spark(tmp_path: Path) -> None:
    context = SimpleNamespace(master="local[2]", _jsc=object())
    spark: Any = SimpleNamespace(sparkContext=context)
    url = f"headwater://{tmp_path}/shop"

    path = path_of(embedded.reachable(url, spark))
    assert embedded.reachable(url, spark).endswith(str(path))
    context._jsc = None  # as after `spark.stop()`
    embedded._all_served[f"{os.getpid()} {url}"]._thread.join(60)

    assert not path.parent.exists()
    context._jsc = object()
    assert path_of(embedded.reachable(url, spark)) != path
    context._jsc = None
    embedded._all_served[f"{os.getpid()} {url}"]._thread.join(60)


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://host", "Spark Connect"])
def test_a_cluster_is_refused_with_the_remedy(master: str, tmp_path: Path) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    with pytest.raises(HeadwaterError) as raised:
        headwater.spark.read(spark, "orders", url=f"headwater://{tmp_path}/shop")
    assert f"headwater serve --dir {tmp_path}/shop" in str(raised.value)
    assert "redis://" in str(raised.value)
    assert not (tmp_path / "shop").exists()


def test_the_source_refuses_an_embedded_url_with_the_remedy() -> None:
    source = HeadwaterSource({"url": "headwater:///var/lib/shop", "stream": "orders"})
    schema = parse_schema("n bigint")
    for ask in (
        source.schema,
        lambda: source.reader(schema),
        lambda: source.streamReader(schema),
        lambda: source.writer(schema, overwrite=False),
        lambda: source.streamWriter(schema, overwrite=False),
    ):
        with pytest.raises(HeadwaterError, match=r"headwater\.spark\.read\(spark"):
            ask()


# --- with Spark -----------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_query_reads_what_this_process_adds(spark: SparkSession, tmp_path: Path) -> None:
    url = f"headwater://{tmp_path / 'shop'}"
    with headwater.connect(url, decode_responses=True) as shop:
        for number in range(1, 6):
            shop.xadd("orders", {"n": number}, id=f"{number}-1")
        rows: list[int] = []

        def sink(frame: DataFrame, _number: int) -> None:
            rows.extend(row.n for row in frame.collect())

        query = (
            headwater.spark.read_stream(spark, "orders", url=url, schema="n bigint")
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            query.processAllAvailable()
            shop.xadd("orders", {"n": 6}, id="6-1")
            query.processAllAvailable()
        finally:
            query.stop()
        assert sorted(rows) == [1, 2, 3, 4, 5, 6]

        totals = headwater.spark.read(spark, "orders", url=url, schema="n bigint")
        headwater.spark.write(totals.selectExpr("sum(n) AS total"), "totals", url=url)
        assert [fields for _id, fields in shop.xrange("totals")] == [{"total": "21"}]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_bare_spark_reports_the_remedy(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.read.format("headwater").option("stream", "orders")
    with pytest.raises(Exception, match=r"headwater\.spark\.read\(spark"):
        reader.option("url", f"headwater://{tmp_path / 'shop'}").load()
    assert not (tmp_path / "shop").exists()
