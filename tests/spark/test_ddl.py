"""A schema's text is read as Spark reads it, and its mistakes are found without a JVM."""

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
        ("", "the end where the name of a column"),
        ("a", "column 'a': the end is no type"),
        ("a strng", "Did you mean 'string'"),
        ("a int b int", "'b' where a comma or the end"),
        ("a int,", "the end where the name"),
        ("a decimal(40)", "at most 38 digits"),
        ("a decimal(4, 5)", "no more behind the point"),
        ("a array<int", "the end where '>'"),
        ("a array", "the end where '<'"),
        ("a map<string>", "'>' where ','"),
        ("a int not", "NULL goes there"),
        ("a int, A string", "'a' is named twice"),
        ("a int; b int", "'; b int' cannot stand"),
        ("a decimal(x)", "'x' where a number"),
    ],
)
def test_a_mistake_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        parse_schema(text)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_schema_means_what_it_means_to_spark(spark: SparkSession) -> None:
    for text in SCHEMAS:
        theirs = spark.createDataFrame([], text).schema

        ours = parse_schema(text)

        assert [(f.name, f.dataType, f.nullable) for f in ours.fields] == [
            (f.name, f.dataType, f.nullable) for f in theirs.fields
        ]
