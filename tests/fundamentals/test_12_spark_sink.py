"""The Spark sink: each row becomes an entry, once, also if a batch is written again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater
import headwater.spark

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"headwater://{tmp_path}/shop"


@pytest.fixture
def shop(url: str) -> Iterator[Any]:
    with headwater.connect(url, decode_responses=True) as store:
        yield store


def items(store: Any, stream: str) -> list[str]:
    return sorted(fields["item"] for _entry, fields in store.xrange(stream))


def test_a_row_is_an_entry_and_a_column_a_field(shop: Any, url: str) -> None:
    frame = headwater.spark.session().createDataFrame(
        [(1, "tea"), (2, None)], "number int, item string"
    )
    headwater.spark.write(frame, "orders", url=url)
    # A null is a field that the entry does not have.
    fields = [fields for _entry, fields in shop.xrange("orders")]
    assert sorted(fields, key=lambda one: one["number"]) == [
        {"number": "1", "item": "tea"},
        {"number": "2"},
    ]


def test_a_query_from_stream_to_stream_writes_each_row_once(
    shop: Any, url: str, tmp_path: Path
) -> None:
    def copy() -> None:
        spark = headwater.spark.session()
        headwater.spark.write_stream(
            headwater.spark.read_stream(spark, "orders", url=url, schema="item string"),
            "copy",
            url=url,
            checkpoint=str(tmp_path / "checkpoint"),
            available_now=True,
        ).awaitTermination()

    shop.xadd("orders", {"item": "tea"})
    copy()
    # When the checkpoint forgets that the batch was written, as after a crash before its commit
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    shop.xadd("orders", {"item": "milk"})
    copy()
    assert items(shop, "copy") == ["milk", "tea"]
