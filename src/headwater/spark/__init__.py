"""Streams into tables: the data source ``headwater`` for Spark, sessions to use it in, and pipelines.

    import headwater.spark

    spark = headwater.spark.session()
    orders = spark.read.format("headwater").option("url", …).option("stream", "orders").load()

pyspark and pyarrow are imported in this package only, and only when something of it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.spark.sessions import session as session

__all__ = ["session"]


def __getattr__(name: str) -> object:
    if name != "session":
        raise AttributeError(f"module 'headwater.spark' has no attribute {name!r}")
    from headwater.spark.sessions import session

    return session
