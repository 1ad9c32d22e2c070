"""The data source that Spark finds by the name ``headwater``.

    events = (
        spark.readStream.format("headwater")
        .option("url", "redis://localhost:6379")
        .option("stream", "orders")
        .schema("order_id bigint, item string, price decimal(10, 2)")
        .load()
    )

Spark looks for modules named ``pyspark_*`` and so finds it where Headwater is installed
(``pyspark_headwater.py``); nothing needs to be registered. Options: options.py. Columns: columns.py.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from headwater.spark.options import parse_options


class HeadwaterSource(DataSource):
    """Streams of Headwater, Redis (7.0 or later) or Valkey as tables.

    Everything that can be said of the options without a connection is said when it is made.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> str:
        """The columns where none are asked for."""
        from headwater.spark.columns import DEFAULT_SCHEMA

        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> Any:
        """For ``spark.read``."""
        from headwater.spark.batch import BatchReader
        from headwater.spark.columns import Shape

        return BatchReader(self._parsed, Shape.of(schema, self._parsed))

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        """For ``spark.readStream``."""
        from headwater.spark.columns import Shape
        from headwater.spark.streaming import StreamReader

        return StreamReader(self._parsed, Shape.of(schema, self._parsed))
