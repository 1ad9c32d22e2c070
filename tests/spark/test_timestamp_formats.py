"""Timestamps that are not in ISO 8601 are read by their format, exactly or not at all, at every depth."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.common.model import MIN_ID
from headwater.errors import DeclarationError, DecodeError
from headwater.spark.archive.contents import Segment
from headwater.spark.archive.files import typed_columns
from headwater.spark.archive.reading import needs_no_decoder
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import parse_options
from headwater.spark.core.positions import Position
from headwater.spark.core.timestamp_formats import pattern
from headwater.spark.decoding.columns import RowShape
from tests.spark.replies import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON = datetime(2026, 11, 21, 12, 0, 0, 500000, UTC)

VALUES = [
    ("s", "1795262400", NOON.replace(microsecond=0)),
    ("s", "1795262400.5", NOON),
    ("s", "1.7952624005E9", NOON),
    ("s", "1795262400.5000009999", NOON),
    ("s", "-0.0000001", EPOCH - timedelta(microseconds=1)),
    ("s", "-62135596800", datetime(1, 1, 1, tzinfo=UTC)),
    ("s", "-62135596801", None),
    ("s", "253402300799.999999", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    ("s", "253402300800", None),
    ("s", "1795262400500", None),
    ("s", "9" * 45, None),
    ("s", "1e400", None),
    ("s", "NaN", None),
    ("s", "", None),
    ("s", " 1", None),
    ("s", "0x10", None),
    ("s", "2026-11-21T12:00:00Z", None),
    ("ms", "1795262400500", NOON),
    ("ms", "1795262400500.0009", NOON),
    ("ms", "-1", EPOCH - timedelta(milliseconds=1)),
    ("us", "1795262400500000", NOON),
    ("us", "9223372036854775807", None),
    ("ns", "1795262400500000999", NOON),
    ("ns", "-1", EPOCH - timedelta(microseconds=1)),
    ("iso", "2026-11-21T12:00:00.500000999Z", NOON),
    ("iso", "1795262400", None),
    ("yyyy-MM-dd HH:mm:ss.SSS", "2026-11-21 12:00:00.500", NOON),
    ("yyyy-MM-dd HH:mm:ss.SSSSSSSSS", "2026-11-21 12:00:00.500000999", NOON),
    ("d/M/yyyy h:mm:ss.S a", "21/11/2026 12:00:00.5 PM", NOON),
    ("d/M/yyyy h:mm a", "21/11/2026 0:00 AM", None),
    ("EEE, dd MMM yyyy HH:mm:ss Z", "Sat, 21 Nov 2026 14:00:00 +0200", NOON.replace(microsecond=0)),
    ("yyyy-MM-dd'T'HH:mm:ssxxx", "2026-11-21T17:30:00+05:30", NOON.replace(microsecond=0)),
    ("yyyy-MM-dd'T'HH:mm:ssxxx", "2026-11-21t17:30:00+05:30", None),
    ("yyyyMMdd", "20261121", datetime(2026, 11, 21, tzinfo=UTC)),
    ("yyyyMMdd", "20260229", None),
    ("yyyyMMdd", "2026112", None),
    ("yyyy", "0000", None),
    ("yyyy-MM-dd HH:mm:ss", "2026-11-21 12:00:60", None),
    ("yyyy-MM-dd HH:mm:ss", "٢٠٢٦-11-21 12:00:00", None),
    ("yyyy-MM-dd xxx", "0001-01-01 +01:00", None),
]
"""Format, text, and the moment that it is; None if it does not fit."""


@pytest.mark.parametrize("type_", ["timestamp", "timestamp_ntz"])
@pytest.mark.parametrize(("format_", "text", "moment"), VALUES)
def test_a_time_is_read_by_its_format(
    format_: str, text: str, moment: datetime | None, type_: str
) -> None:
    schema = f"at {type_}, n int, _rescued string"

    # Given a time among others that fit
    expected = moment if moment is None or type_ == "timestamp" else moment.replace(tzinfo=None)
    entry = {b"at": text.encode(), b"n": b"2"}
    rows = rows_of(schema, {b"n": b"1"}, entry, timestampFormat=format_)

    # Then it is the moment, or it is null and rescued
    assert rows[0]["_rescued"] is None
    assert rows[1]["at"] == expected
    assert rows[1]["n"] == 2
    kept = rows[1]["_rescued"]
    assert (None if kept is None else json.loads(kept)) == (
        {"at": text, "n": "2"} if moment is None else None
    )
    if moment is None:
        with pytest.raises(DecodeError, match=r"at=.* is not a valid timestamp"):
            rows_of(schema, entry, timestampFormat=format_, mode="failfast")


@pytest.mark.parametrize("codec", ["json", "msgpack", "faststream"])
@pytest.mark.parametrize(
    ("at", "moment"), [(1795262400500, NOON), ("1795262400500", NOON), ("x", None)]
)
def test_each_timestamp_of_a_document_has_its_format(codec: str, at: Any, moment: Any) -> None:
    import msgspec

    schema = (
        "at timestamp, order struct<at: timestamp, seen: timestamp>, items array<struct<at: timestamp>>, "
        "of map<string, timestamp>, n int"
    )
    body = {
        "at": at,
        "order": {"at": at, "seen": 1795262400},
        "items": [{"at": at}, {"at": None}],
        "of": {"x": at},
        "n": 1,
    }
    encoded = msgspec.msgpack.encode(body) if codec == "msgpack" else msgspec.json.encode(body)
    fields = {b"data": encoded}
    if codec == "faststream":
        fields = {
            b"__data__": b'{"data": ' + msgspec.json.encode(encoded.decode()) + b', "headers": {}}'
        }
    formats = dict.fromkeys(["at", "order.at", "items.at", "of"], "ms")

    (row,) = rows_of(schema, fields, codec=codec, timestampFormat=json.dumps(formats))

    assert row["at"] == moment
    assert row["order"] == {"at": moment, "seen": NOON.replace(microsecond=0)}
    assert row["items"] == [{"at": moment}, {"at": None}]
    assert row["of"] == [("x", moment)]
    assert row["n"] == 1


@pytest.mark.parametrize(
    ("schema", "format_", "said"),
    [
        ("at string", "ms", "all columns: not a timestamp .* these are none"),
        (
            "id string, timestamp timestamp",
            '{"timestamp": "ms"}',
            "timestamp: not a timestamp that",
        ),
        ("at timestamp", '{"ta": "ms"}', "ta: not a timestamp .* these are at. Attributes"),
        ("o struct<at: timestamp>", '{"at": "s"}', "these are o.at. Attributes of nested values"),
    ],
)
def test_a_format_without_effect_is_refused(schema: str, format_: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        rows_of(schema, {}, timestampFormat=format_)


def test_an_archive_has_no_value_that_depends_on_a_format() -> None:
    # Given a schema with a format for one of its columns
    schema = parse_schema("at timestamp, n int")
    options = parse_options({"url": "redis://h", "stream": "s", "timestampFormat": '{"at": "ms"}'})

    # Then only the other one is archived typed
    assert typed_columns(schema, options).names == ["n"]

    # And an archive that was written without the format is decoded again
    start = Position(MIN_ID, 0)
    segment = Segment(start, start, schema.json(), "fields", ())
    plain = RowShape.of(schema, parse_options({"url": "redis://h", "stream": "s"}))
    group: Any = type("Group", (), {"bad": 0, "plain": True})()
    assert needs_no_decoder(plain, segment, group)
    assert not needs_no_decoder(RowShape.of(schema, options), segment, group)


@given(st.datetimes(), st.sampled_from(["s", "ms", "us", "ns"]), st.integers(0, 999))
@settings(max_examples=100, deadline=None)
def test_every_microsecond_is_exact(moment: datetime, unit: str, nanos: int) -> None:
    micros = (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    text = f"{micros * 1000 + nanos}"
    shift = {"s": 9, "ms": 6, "us": 3, "ns": 0}[unit]
    number = f"{text}E-{shift}" if shift else text

    (row,) = rows_of("at timestamp", {b"at": number.encode()}, timestampFormat=unit)

    assert row["at"] == moment.replace(tzinfo=UTC)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_pattern_means_what_it_means_to_spark(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for format_, text, moment in VALUES:
        if format_ in ("s", "ms", "us", "ns", "iso") or moment is None:
            continue
        if "E" in format_:
            continue  # Spark writes names of days, but does not read them
        frame = spark.createDataFrame([(text,)], "text string")
        found = frame.select(f.unix_micros(f.to_timestamp("text", format_))).first()
        assert found is not None
        assert found[0] == pattern(format_)(text), format_


def test_a_pipeline_declares_formats_of_columns(tmp_path: Path) -> None:
    from headwater.errors import PipelineError
    from headwater.spark.pipeline import load

    file = tmp_path / "p.toml"
    text = """
[source.orders]
url = "redis://localhost"
stream = "orders"
schema = "at timestamp, sent timestamp"
timestampFormat = { at = "ms", sent = "dd/MM/yyyy" }

[table.t]
mode = "append"
sql = "SELECT * FROM orders"
path = "t"
"""
    file.write_text(text)
    assert json.loads(load(file).sources["orders"].options["timestampFormat"])["at"] == "ms"

    file.write_text(text.replace("{ at = ", "{ ta = "))
    with pytest.raises(PipelineError, match=r"source.orders: timestampFormat: ta: not a timestamp"):
        load(file)
