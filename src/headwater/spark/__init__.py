"""The Spark data source ``headwater``, sessions that can use it, and pipelines from streams to tables.

    import headwater.spark

    spark = headwater.spark.session()
    orders = headwater.spark.read(spark, "orders", url=…, schema="order_id bigint, item string")

Importing this package imports neither pyspark nor pyarrow; using one of its names does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headwater.spark.archive.manifest import archived_files as archived_files
    from headwater.spark.embedded import serving as serving
    from headwater.spark.frames import read as read
    from headwater.spark.frames import read_stream as read_stream
    from headwater.spark.frames import write as write
    from headwater.spark.frames import write_stream as write_stream
    from headwater.spark.packing import pack_environment as pack_environment
    from headwater.spark.packing import pack_module as pack_module
    from headwater.spark.query_listener import QueryListener as QueryListener
    from headwater.spark.sessions import session as session
    from headwater.spark.tracing import TracingListener as TracingListener

_HOMES: Final = {
    "QueryListener": "query_listener",
    "TracingListener": "tracing",
    "archived_files": "archive.manifest",
    "pack_environment": "packing",
    "pack_module": "packing",
    "read": "frames",
    "read_stream": "frames",
    "serving": "embedded",
    "session": "sessions",
    "write": "frames",
    "write_stream": "frames",
}

__all__ = [*_HOMES]  # noqa: PLE0604  # the keys are strings, which ruff cannot see


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headwater.spark' has no attribute {name!r}")
    return getattr(import_module(f"headwater.spark.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
