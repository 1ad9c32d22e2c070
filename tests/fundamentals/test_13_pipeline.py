"""Pipelines: a file declares which streams become which tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

import headwater.spark
from headwater.testing.server import server_process

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.slow]

DECLARATION = """
[source.orders]
url = "{url}"
stream = "orders"
schema = "number int, item string, price decimal(10, 2)"

[table.sales]
mode = "append"
sql = "SELECT * FROM orders"
path = "{place}/sales"

[table.by_item]
mode = "complete"
sql = "SELECT item, sum(price) AS revenue FROM sales GROUP BY item"
path = "{place}/by_item"
"""


@pytest.fixture
def store() -> Iterator[redis.Redis]:
    with server_process("--appendonly", "no") as server, redis.Redis.from_url(server.url) as client:
        yield client


def test_each_run_continues_the_tables(
    store: redis.Redis, tmp_path: Path, run_headwater: Callable[..., str]
) -> None:
    connection = store.connection_pool.connection_kwargs
    url = f"redis://{connection['host']}:{connection['port']}"
    pipeline = tmp_path / "orders.toml"
    pipeline.write_text(DECLARATION.format(url=url, place=tmp_path))

    for number in range(2):
        store.xadd("orders", {"number": number, "item": "tea", "price": "2.50"})
        run_headwater("pipeline", "run", str(pipeline), apart=True)

    spark = headwater.spark.session()
    assert spark.read.parquet(str(tmp_path / "sales")).count() == 2
    (row,) = spark.read.parquet(str(tmp_path / "by_item")).collect()
    assert (row["item"], str(row["revenue"])) == ("tea", "5.00")


def test_a_mistake_is_reported_before_anything_is_written(
    store: redis.Redis, tmp_path: Path, run_headwater: Callable[..., str]
) -> None:
    pipeline = tmp_path / "orders.toml"
    wrong = DECLARATION.format(url="redis://localhost:1", place=tmp_path)
    pipeline.write_text(wrong.replace('mode = "append"', 'mode = "appendd"'))

    said = run_headwater("pipeline", "plan", str(pipeline), "--no-spark", status=1)
    assert "table.sales.mode" in said
    assert not (tmp_path / "sales").exists()
