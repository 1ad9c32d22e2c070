"""The sources that Headwater's is compared with: a simple reader, one with Arrow, and an upper bound.

All return the same five columns of the same entries in two partitions. Their code runs in Spark's Python
processes, so this module must be importable there.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import redis
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

SCHEMA: Final = (
    "order_id bigint, price decimal(10, 2), item string, placed timestamp, category string"
)
NAMES: Final = (b"order_id", b"price", b"item", b"placed", b"category")
FIRST_MS: Final = 1_763_683_200_000
STREAM: Final = "orders"
PAGE: Final = 5000

ARROW: Final = pa.schema(
    [
        ("order_id", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("item", pa.string()),
        ("placed", pa.timestamp("us", "UTC")),
        ("category", pa.string()),
    ]
)


@dataclass(frozen=True)
class Half(InputPartition):
    """Entries by their numbers, ``end`` excluded; entry n has the id ``FIRST_MS + n``."""

    start: int
    end: int


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.url = options.get("url", "")
        self.rows = int(options["rows"])

    def partitions(self) -> list[InputPartition]:
        return [Half(0, self.rows // 2), Half(self.rows // 2, self.rows)]

    def pages(self, part: Half, client: redis.Redis) -> Iterator[Any]:
        for start in range(part.start, part.end, PAGE):
            last = min(part.end, start + PAGE) - 1
            yield client.xrange(STREAM, FIRST_MS + start, FIRST_MS + last, count=PAGE)


class _TuplesReader(_Reader):
    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Half)
        with redis.Redis.from_url(self.url, protocol=2, decode_responses=True) as client:
            for page in self.pages(partition, client):
                for _id, fields in page:
                    yield (
                        int(fields["order_id"]),
                        decimal.Decimal(fields["price"]),
                        fields["item"],
                        dt.datetime.fromisoformat(fields["placed"]),
                        fields["category"],
                    )


class _HiredisReader(_Reader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Half)
        with redis.Redis.from_url(self.url, protocol=2) as client:
            client.set_response_callback("XRANGE", lambda reply, **_options: reply)
            for page in self.pages(partition, client):
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([body[2 * place + 1] for _id, body in page], pa.string()).cast(
                            ARROW.field(place).type
                        )
                        for place in range(len(NAMES))
                    ],
                    schema=ARROW,
                )


class _ConstantReader(_Reader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Half)
        rows = [
            {
                "order_id": number,
                "price": decimal.Decimal(number % 10_000) / 100,
                "item": f"item {number:055d}",
                "placed": dt.datetime(2026, 11, 21, 5, tzinfo=dt.UTC),
                "category": "tea",
            }
            for number in range(PAGE)
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=ARROW)
        for start in range(partition.start, partition.end, PAGE):
            yield batch.slice(0, min(PAGE, partition.end - start))


class _Source(DataSource):
    kind: type[_Reader]

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return self.kind(dict(self.options))


class TuplesSource(_Source):
    kind = _TuplesReader

    @classmethod
    def name(cls) -> str:
        return "benchmark_tuples"


class HiredisSource(_Source):
    kind = _HiredisReader

    @classmethod
    def name(cls) -> str:
        return "benchmark_hiredis"


class ConstantSource(_Source):
    kind = _ConstantReader

    @classmethod
    def name(cls) -> str:
        return "benchmark_constant"
