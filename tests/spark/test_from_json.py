"""JSON is read as Spark's ``from_json`` reads the same text, except as docs/guide/spark.md says."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import from_json

from tests.spark.replies import rows_of
from tests.spark.test_nested import VALUES

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DEVIATIONS = {
    ("string", "1.50"): "a number is the text as it is written",
    ("string", '{"a": [1]}'): "so is a document",
    ("string", r'"a\ud800b"'): "half a surrogate pair cannot be text; Spark puts a question mark",
    ("string", r'"\ude00"'): "half a surrogate pair",
    ("string", r'["\ud800"]'): "half a surrogate pair",
    ("int", '"5"'): "a number in quotes is that number",
    ("boolean", '"false"'): "a boolean in quotes",
    ("array<int>", '"[1]"'): "a document in quotes",
    ("double", "1e400"): "a number beyond the range does not become infinite",
    ("float", "1e39"): "beyond the range",
    ("decimal(4, 2)", "1.005"): "a decimal is not rounded",
    ("timestamp", "1359608400000"): "Spark's year 45054 is one that Python cannot show",
}


def test_json_is_read_as_from_json_does(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    differing = set()
    for type_, value, _ in VALUES:
        # Given one JSON value
        document = f'{{"v": {value}}}'
        # When the source and Spark read it
        (ours,) = rows_of(f"v {type_}", {b"data": document.encode()}, codec="json")
        column = from_json("document", f"v {type_}").getField("v")
        frame = spark.createDataFrame([(document,)], "document string")
        try:
            theirs = frame.select(column).collect()[0][0]
        except ValueError:
            theirs = "cannot be shown"
        if _plain(ours["v"]) != _plain(theirs):
            differing.add((type_, value))
    # Then they differ where the guide says so, and nowhere else
    assert differing == set(DEVIATIONS)


def _plain(value: Any) -> Any:
    """Return a value without the differences of the ways in which it came to Python."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, Row):
        return value.asDict()
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    if isinstance(value, bytearray):
        return bytes(value)
    return str(value) if isinstance(value, float) else value
