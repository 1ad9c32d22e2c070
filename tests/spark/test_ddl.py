"""A schema's text is parsed as Spark parses it, and its mistakes are found without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headwater.spark.core.ddl import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMAS = (
    "id string, n bigint, at timestamp",
    "a int NOT NULL, b decimal(10,2), c decimal, d decimal(5)",
    "`odd name` string COMMENT 'it''s', x TINYINT, y float",
    "l array<struct<item: string, n int>>, m map<string, array<double>>, t timestamp_ntz",
    "s struct<a: int NOT NULL, b: struct<c: date>>",
    "a boolean,b binary , c smallint, d real, e long, f short, g byte, h integer",
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a column name, got the end"),
        ("a", "column 'a': expected a type, got the end"),
        ("a strng", "Did you mean 'string'"),
        ("a int b int", "expected a comma or the end, got 'b'"),
        ("a int,", "expected a column name, got the end"),
        ("a decimal(40)", "the precision must be 1 to 38"),
        ("a decimal(4, 5)", "the scale at most the precision"),
        ("a array<int", "expected '>', got the end"),
        ("a array", "expected '<', got the end"),
        ("a map<string>", "expected ',', got '>'"),
        ("a int not", "expected NULL after NOT"),
        ("a int, A string", "duplicate column 'a'"),
        ("a int; b int", "'; b int' is not valid in a schema"),
        ("a decimal(x)", "expected a number, got 'x'"),
    ],
)
def test_a_mistake_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        parse_schema(text)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_schema_equals_sparks(spark: SparkSession) -> None:
    for text in SCHEMAS:
        theirs = spark.createDataFrame([], text).schema

        ours = parse_schema(text)

        assert [(f.name, f.dataType, f.nullable) for f in ours.fields] == [
            (f.name, f.dataType, f.nullable) for f in theirs.fields
        ]
