"""A value is read alike at top level and at any depth, and the smallest thing that does not fit is null."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import Any

import msgspec
import pytest

from tests.spark.replies import rows_of

HOUR = dt.datetime(2013, 1, 31, 5, tzinfo=dt.UTC)

VALUES: list[tuple[str, str, Any]] = [
    ("string", '"tea"', "tea"),
    ("string", "5", "5"),
    ("string", "1.50", "1.50"),
    ("string", "true", "true"),
    ("string", '{"a": [1]}', '{"a": [1]}'),
    ("string", r'"\ud83d\ude00"', "\U0001f600"),
    ("string", r'"a\ud800b"', ...),
    ("string", r'"\ude00"', ...),
    ("string", r'["\ud800"]', ...),
    ("string", r'"\\ud800"', r"\ud800"),
    ("binary", r'"\ud800"', ...),
    ("int", "5", 5),
    ("int", '"5"', 5),
    ("int", "5.0", ...),
    ("int", "2147483648", ...),
    ("int", "true", ...),
    ("bigint", "9223372036854775807", 2**63 - 1),
    ("bigint", "1e3", ...),
    ("tinyint", "-129", ...),
    ("boolean", "true", True),
    ("boolean", '"false"', False),
    ("boolean", '"yes"', ...),
    ("double", "1.5", 1.5),
    ("double", "5", 5.0),
    ("double", "1e400", ...),
    ("double", '"NaN"', "NaN"),
    ("float", "1e39", ...),
    ("decimal(38, 2)", "123456789012345678901234567890123456.25", "exact"),
    ("decimal(38, 2)", '"1.50"', decimal.Decimal("1.50")),
    ("decimal(4, 2)", "1.005", ...),
    ("decimal(4, 2)", "123", ...),
    ("date", '"2013-01-31"', HOUR.date()),
    ("date", "17", ...),
    ("timestamp", '"2013-01-31T05:00:00.000000999Z"', HOUR),
    ("timestamp", '"2013-01-31T07:00:00+02:00"', HOUR),
    ("timestamp", str(int(HOUR.timestamp())), HOUR),
    ("timestamp", str(int(HOUR.timestamp()) * 1000), ...),
    ("timestamp", f'"{int(HOUR.timestamp())}"', ...),
    ("timestamp", "1.5", ...),
    ("timestamp_ntz", '"2013-01-31T05:00:00"', HOUR.replace(tzinfo=None)),
    ("timestamp_ntz", str(int(HOUR.timestamp())), ...),
    ("binary", '"AAE="', b"\x00\x01"),
    ("binary", '"AAE"', ...),
    ("array<int>", "[1, null]", [1, None]),
    ("array<int>", '"[1]"', [1]),
    ("array<int>", "17", ...),
    ("struct<n: int>", '{"n": 1, "n": 2}', {"n": 2}),
    ("struct<n: int>", "[1]", ...),
    ("map<string, int>", '{"a": 1}', [("a", 1)]),
]


@pytest.mark.parametrize(("type_", "value", "expected"), VALUES)
def test_a_json_value_is_read_alike_at_every_depth(type_: str, value: str, expected: Any) -> None:
    # Given a value as an attribute, and in a struct, an array, a map, and all of them
    nested = {
        "v": (type_, value),
        "s": (f"struct<x: {type_}, more: int>", f'{{"x": {value}, "more": 1}}'),
        "a": (f"array<{type_}>", f"[{value}, null]"),
        "m": (f"map<string, {type_}>", f'{{"x": {value}}}'),
        "d": (f"array<map<string, struct<x: {type_}>>>", f'[{{"k": {{"x": {value}}}}}]'),
    }
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in nested.items())
    attributes = [f'"{name}": {text}' for name, (_, text) in nested.items()]
    document = f"{{{', '.join(attributes)}}}"
    # When it is read
    (row,) = rows_of(f"{schema}, _rescued string", {b"data": document.encode()}, codec="json")
    # Then it is the same everywhere, and nothing around it is lost
    if expected == "exact":
        expected = decimal.Decimal(value)
    one = None if expected is ... else expected
    found = [row["v"], row["s"]["x"], row["a"][0], dict(row["m"])["x"], dict(row["d"][0])["k"]["x"]]
    if expected == "NaN":
        assert [str(each) for each in found] == ["nan"] * 5
    else:
        assert found == [one] * 5
    assert row["s"]["more"] == 1
    assert len(row["a"]) == 2
    # And the document is kept if it does not fit
    assert (row["_rescued"] is not None) == (expected is ...)


@pytest.mark.parametrize(
    ("type_", "value", "kept", "path"),
    [
        ("array<int>", '[1, "x", 3]', [1, None, 3], "v[1]"),
        ("struct<a: int, b: string>", '{"a": "x", "b": "tea"}', {"a": None, "b": "tea"}, "v.a"),
        ("map<string, int>", '{"a": 1, "b": {}}', [("a", 1), ("b", None)], "v.b"),
        (
            "struct<lines: array<struct<n: int, price: decimal(4, 2)>>>",
            '{"lines": [{"n": 1, "price": 1.5}, {"n": 2, "price": 1.005}, 7]}',
            {"lines": [{"n": 1, "price": decimal.Decimal("1.50")}, {"n": 2, "price": None}, None]},
            "v.lines[2]",
        ),
        ("struct<a: int NOT NULL, b: int>", '{"b": 1}', None, "v.a"),
        (
            "struct<a: struct<b: int NOT NULL>, c: int>",
            '{"a": {}, "c": 1}',
            {"a": None, "c": 1},
            "v.a.b",
        ),
    ],
)
def test_the_smallest_thing_that_does_not_fit_is_null_and_named(
    type_: str, value: str, kept: Any, path: str
) -> None:
    body = {b"v": value.encode()}
    good = {b"v": b"null"} if type_.startswith("struct") else {b"w": b"1"}
    rows = rows_of(f"v {type_}, w int, _rescued string", body, good)
    assert rows[0]["v"] == kept
    assert json.loads(rows[0]["_rescued"]) == {"v": value}
    with pytest.raises(Exception, match="is not a valid") as caught:
        rows_of(f"v {type_}", body, mode="failfast")
    assert f"{path} of v=" in str(caught.value)


def test_messagepack_is_read_as_the_same_json() -> None:
    schema = (
        "at timestamp, n int, lines array<struct<at: timestamp, item: string>>, _rescued string"
    )
    seconds = int(HOUR.timestamp())
    document = {"at": seconds, "n": 5, "lines": [{"at": seconds, "item": 17}, {"at": "soon"}]}
    packed = rows_of(schema, {b"data": msgspec.msgpack.encode(document)}, codec="msgpack")
    spelled = rows_of(schema, {b"data": json.dumps(document).encode()}, codec="json")
    assert packed[0]["lines"] == [{"at": HOUR, "item": "17"}, {"at": None, "item": None}]
    assert (packed[0]["at"], packed[0]["n"]) == (HOUR, 5)
    assert [{**row, "_rescued": None} for row in packed] == [
        {**row, "_rescued": None} for row in spelled
    ]


def test_a_string_that_is_not_utf_8_is_null_alone() -> None:
    rows = rows_of(
        "a string, b string, c struct<d: string, e: int>, _rescued string",
        {b"data": b'{"a": "\xff", "b": "tea", "c": {"d": "\\n\xff", "e": 1}}'},
        codec="json",
    )
    assert [rows[0][name] for name in "abc"] == [None, "tea", {"d": None, "e": 1}]
    assert rows[0]["_rescued"] is not None


def test_one_document_in_a_page_that_does_not_fit_changes_no_other() -> None:
    # Given documents that are decoded at once, and the same with one that is not
    documents = [{b"v": b'{"n": %d, "items": ["a", null]}' % n} for n in range(50)]
    type_ = "v struct<n: bigint, items: array<string>>"
    clean = rows_of(type_, *documents)
    documents[25] = {b"v": b'{"n": "x", "items": [1.50]}'}
    # When they are read
    rows = rows_of(type_, *documents)
    # Then the others are the same
    assert rows[25]["v"] == {"n": None, "items": ["1.50"]}
    assert rows[:25] + rows[26:] == clean[:25] + clean[26:]
