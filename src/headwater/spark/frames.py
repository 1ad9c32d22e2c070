"""Streams as frames in one call, for notebooks and programs: read, read_stream, write, write_stream.

    orders = headwater.spark.read(spark, "orders", schema="order_id bigint, item string")

Rule 1. Options are those of the source and the sink, in Python's spelling (``starting_id`` for
        ``startingId``). An unknown option raises an error that names the nearest known one.
Rule 2. Values are Python objects: a list, a dictionary with a value for each stream, a datetime, a timedelta,
        a bool, and so on. A value of an unsupported type raises an error that names the option.
Rule 3. A store of this process is served to Spark's processes, with a local master only (embedded.py).
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.common.model import StreamID
from headwater.errors import DeclarationError
from headwater.spark.core.option_values import nearest_option
from headwater.spark.embedded import reachable_options
from headwater.spark.sessions import bring_module, with_parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

ENVIRONMENT: Final = "HEADWATER_URL"
"""The environment variable that names the store if no url is given, as on the command line."""

_FIRST_UPPER: Final = re.compile(r"(?<!^)([A-Z])")


def read(
    spark: SparkSession,
    stream: str | Sequence[str] | None = None,
    *,
    schema: str | StructType | None = None,
    url: str | None = None,
    **options: Any,
) -> DataFrame:
    """Return a frame of ``stream``, as ``spark.read`` does: the entries in the stream when the frame is evaluated.

        orders = read(spark, "orders", schema="order_id bigint, item string", starting_id="5-0")
        week = read(spark, ["eu", "us"], starting_timestamp=datetime(2026, 11, 16, tzinfo=UTC))

    - ``stream``: a name, a list of names or a pattern (``orders.*``); or ``streams_pattern``, a regular expression.
    - ``schema``: a DDL string or a ``StructType``. If None, the columns are ``stream, id, timestamp,
      fields``, or those that ``infer_schema`` finds.
    - ``url``: the url of a server or an embedded store; by default that in the variable ``HEADWATER_URL``.
    - ``options``: the source's options, in Python's spelling and with Python's values: docs/guide/spark.md,
      docs/guide/notebooks.md. With ``archive``, Spark itself reads files whose columns have the types of
      ``schema`` if that is faster, and pushes filters down to them; the order of the rows is then not defined.

    Raises `DeclarationError` for an unknown option or a wrong value, and `HeadwaterError` for an embedded
    store on a cluster. When the frame is evaluated, Spark reports `DataLoss` and `DecodeError`.
    """
    texts = _source_options(spark, stream, url, options)
    if "archive" in texts and schema is not None:
        from headwater.spark.archive.frames import archived_frame

        frame = archived_frame(spark, texts, schema)
        if frame is not None:
            return frame
    reader = spark.read.format("headwater").options(**texts)
    return (reader if schema is None else reader.schema(schema)).load()


def read_stream(
    spark: SparkSession,
    stream: str | Sequence[str] | None = None,
    *,
    schema: str | StructType | None = None,
    url: str | None = None,
    **options: Any,
) -> DataFrame:
    """Return an unbounded frame of ``stream``, as ``spark.readStream`` does.

        orders = read_stream(spark, "orders", group="tables", max_entries_per_trigger=100_000)

    Arguments and errors are the same as for `headwater.spark.read`, except that options for batches only, such as
    ``ending_id``, are refused. With ``group``, the query reads as a member of that consumer group.
    """
    texts = _source_options(spark, stream, url, options)
    reader = spark.readStream.format("headwater").options(**texts)
    return (reader if schema is None else reader.schema(schema)).load()


def write(
    frame: DataFrame,
    stream: str | None = None,
    *,
    url: str | None = None,
    **options: Any,
) -> None:
    """Add each row of ``frame`` to ``stream`` as an entry, as ``frame.write`` does.

        write(totals, "totals", maxlen=10_000)
        write(totals, stream_column="region")

    Columns become fields; ``options`` are the sink's (docs/guide/spark.md). ``url`` and the errors are the same as
    for `headwater.spark.read`. A task that Spark runs again adds its rows again, unless ``txn_app_id`` and
    ``txn_version`` are set: each row is then added once.
    """
    texts = _sink_options(frame.sparkSession, stream, url, options, streaming=False)
    frame.write.format("headwater").mode("append").options(**texts).save()


def write_stream(
    frame: DataFrame,
    stream: str | None = None,
    *,
    checkpoint: str | os.PathLike[str],
    url: str | None = None,
    name: str | None = None,
    output_mode: str | None = None,
    available_now: bool = False,
    interval: float | str | dt.timedelta | None = None,
    **options: Any,
) -> StreamingQuery:
    """Start a query that adds each row of an unbounded ``frame`` to ``stream``, by default exactly once.

        query = write_stream(big_orders, "orders.big", checkpoint="checkpoints/big", interval=10)
        query.awaitTermination()

    - ``checkpoint``: the directory of the query's state, from which the query continues after a restart.
    - ``name``, ``output_mode``: as in Spark's ``queryName`` and ``outputMode``.
    - ``available_now``: if true, the query processes the rows that are available now, and ends.
    - ``interval``: the time between the starts of batches, in seconds, as a timedelta or as Spark writes it
      (``"10 seconds"``). By default, a batch starts when the one before ends. Not allowed with ``available_now``.
    - ``options``: the sink's (docs/guide/spark.md).

    ``url`` and the errors are the same as for `headwater.spark.read`.
    """
    if available_now and interval is not None:
        raise DeclarationError(
            "available_now and interval exclude each other: both set the trigger"
        )
    texts = _sink_options(frame.sparkSession, stream, url, options, streaming=True)
    writer = frame.writeStream.format("headwater").options(**texts)
    writer = writer.option("checkpointLocation", os.fspath(checkpoint))
    if name is not None:
        writer = writer.queryName(name)
    if output_mode is not None:
        writer = writer.outputMode(output_mode)
    if available_now:
        writer = writer.trigger(availableNow=True)
    elif interval is not None:
        writer = writer.trigger(processingTime=_interval(interval))
    return writer.start()


# --- options --------------------------------------------------------------------------------------


def _source_options(
    spark: SparkSession,
    stream: str | Sequence[str] | None,
    url: str | None,
    options: Mapping[str, Any],
) -> dict[str, str]:
    from headwater.spark.core.options import OPTIONS, parse_options

    texts = _place(stream, url) | option_texts(options, OPTIONS)
    parse_options(texts)  # report mistakes before Spark starts a process
    if "archive" in texts:
        # The working directory of Spark's processes may differ.
        texts["archive"] = str(Path(texts["archive"]).absolute())
    return _for_spark(with_parallelism(texts, spark), spark)


def _sink_options(
    spark: SparkSession,
    stream: str | None,
    url: str | None,
    options: Mapping[str, Any],
    *,
    streaming: bool,
) -> dict[str, str]:
    from headwater.spark.sink.options import OPTIONS, parse_options

    # A JSON list, because a comma or a star is part of the name here.
    texts = _place(None if stream is None else [stream], url) | option_texts(options, OPTIONS)
    parse_options(texts, streaming=streaming)
    return _for_spark(texts, spark)


def _for_spark(texts: Mapping[str, str], spark: SparkSession) -> dict[str, str]:
    bring_module(spark)
    return reachable_options(texts, spark)


def _place(stream: str | Sequence[str] | None, url: str | None) -> dict[str, str]:
    place = url or os.environ.get(ENVIRONMENT)
    if not place:
        raise DeclarationError(
            'no store is named: give url="redis://localhost:6379", or set HEADWATER_URL'
        )
    return {"url": place} | ({} if stream is None else {"stream": option_text("stream", stream)})


def option_texts(given: Mapping[str, Any], known: Sequence[str]) -> dict[str, str]:
    """Return options in the source's spelling, with their values as strings.

    >>> option_texts({"starting_id": {"eu": "5-0"}, "failOnDataLoss": False}, ["startingId", "failOnDataLoss"])
    {'startingId': '{"eu": "5-0"}', 'failOnDataLoss': 'false'}

    Options that are None are left out. Raises `DeclarationError` for an option that is not in ``known``
    and for a value of an unsupported type.
    """
    spelling = {snake(name): name for name in known} | {name: name for name in known}
    texts: dict[str, str] = {}
    for name, value in given.items():
        if name not in spelling:
            raise DeclarationError(
                f"unknown option {name!r}. {nearest_option(snake(name), map(snake, known))}"
            )
        if spelling[name] in texts:
            raise DeclarationError(f"{spelling[name]} is given twice, in both of its spellings")
        if value is not None:
            texts[spelling[name]] = option_text(name, value)
    return texts


def snake(name: str) -> str:
    """Return ``name`` in Python's spelling.

    >>> snake("maxEntriesPerTrigger")
    'max_entries_per_trigger'
    """
    return _FIRST_UPPER.sub(r"_\1", name).lower()


def option_text(name: str, value: object) -> str:
    """Return ``value`` as the string that the source parses.

    >>> option_text("starting_timestamp", dt.datetime(2026, 11, 21, 14, 30, tzinfo=dt.UTC))
    '2026-11-21T14:30:00+00:00'
    >>> option_text("stream", ["eu", "us"]), option_text("min_idle_time", dt.timedelta(seconds=30))
    ('["eu", "us"]', '30000')

    A datetime without a time zone is UTC, as in the source's own options.
    """
    if isinstance(value, Mapping):
        return json.dumps({str(key): option_text(name, one) for key, one in value.items()})
    for kind, text in _TEXTS:
        if isinstance(value, kind):
            return text(value)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return json.dumps([option_text(name, one) for one in items])
    raise DeclarationError(
        f"{name}: {value!r} is of type {type(value).__name__}; an option is a text, a number, a bool, a "
        "datetime, a timedelta, a list, or a dictionary of stream to value"
    )


_TEXTS: Final[tuple[tuple[type, Callable[[Any], str]], ...]] = (
    (str, str),
    (bool, lambda value: str(value).lower()),
    (int, str),
    (StreamID, str),
    (dt.date, lambda value: value.isoformat()),
    (dt.timedelta, lambda value: str(value // dt.timedelta(milliseconds=1))),
    (os.PathLike, os.fspath),
)
"""The function that makes each type a string. Order matters: a bool is an int, too, and a datetime is a date."""


def _interval(value: float | str | dt.timedelta) -> str:
    if isinstance(value, str):
        return value
    seconds = value.total_seconds() if isinstance(value, dt.timedelta) else value
    return f"{round(seconds * 1000)} milliseconds"
