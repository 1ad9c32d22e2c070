"""Each row that a table's sink writes is read back equal, or its batch is refused before it is written.

Rows are read as a table of mode complete reads them (`finished`), as a table that follows the log reads them, and by a
reader that is not part of Headwater.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.errors import PipelineError
from headwater.spark.pipeline.sinks import BatchId
from headwater.spark.pipeline.sinks.delta import DeltaAppend, DeltaComplete, DeltaUpdate
from headwater.spark.pipeline.sinks.files import rows_of
from headwater.spark.pipeline.sinks.parquet import AppendTable, CompleteTable
from headwater.spark.pipeline.table_log.logs import log_of
from headwater.spark.pipeline.table_log.positions import NOTHING, LogPosition
from tests.spark.checkpoints import give_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

Sink = AppendTable | CompleteTable | DeltaAppend | DeltaComplete
Make = Callable[[Path], Sink]

ODD = "a b%é'#[1]{x,*}?"
"""A name with characters that mean something in patterns, urls or shells."""


KINDS: dict[str, Make] = {
    "append": lambda path: AppendTable(path, ("c",)),
    "complete": lambda path: CompleteTable(path, ("c",)),
    "delta": DeltaAppend,
    "partitioned delta": lambda path: DeltaAppend(path, partition_by=("c",)),
    "update": lambda path: DeltaUpdate(path, ("n",), partition_by=("c",)),
    "complete delta": lambda path: DeltaComplete(path, partition_by=("c",)),
}


def prepared(kept: Any) -> Any:
    kept.prepare()
    if hasattr(kept, "checkpoint"):
        give_checkpoint(kept.checkpoint)
    return kept


def followed(kept: Any, schema: StructType, start: LogPosition = NOTHING) -> list[dict[str, Any]]:
    """Return the rows that a table gets that follows ``kept``."""
    log = log_of("delta" if isinstance(kept, DeltaAppend) else "parquet", kept.path)
    arrow = to_arrow_schema(schema, timezone="UTC")
    files = log.added(start, log.end())
    return [row for file in files for batch in rows_of(file, arrow) for row in batch.to_pylist()]


def numbered(spark: SparkSession, values: list[Any], kind: str) -> DataFrame:
    return spark.createDataFrame(list(enumerate(values)), f"n int, c {kind}").coalesce(1)


def by_number(rows: list[Any]) -> list[Any]:
    return [row["c"] for row in sorted(rows, key=lambda row: row["n"])]


# --- partitions -----------------------------------------------------------------------------------

TEXTS = [
    *("a/b", "a%b", "%41", "a=b", "a:b", "a\nb", " a", "a ", " ", ".", "..", "x" * 200, "A", "a"),
    *(
        "é",
        "e\u0301",
        "日本",
        "'",
        '"',
        "\\",
        "#?",
        "{[*]}",
        "\u2028",
        "\x85",
        "\x7f",
        "\x1c",
        "\t",
    ),
    *("_", "0123", "1e3", "null", "NaN", None),
]


@pytest.mark.parametrize("kind", ["append", "partitioned delta", "update"])
def test_a_partition_value_is_read_back_as_it_was_written(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "t"
    kept = prepared(KINDS[kind](path))
    frame = numbered(spark, TEXTS, "string")

    assert kept.write(frame, BatchId(0)) == len(TEXTS)

    assert by_number(kept.finished(spark, frame.schema).collect()) == TEXTS
    assert by_number(followed(kept, frame.schema)) == TEXTS
    if kind == "append":
        names = ds.partitioning(pa.schema([("c", pa.string())]), flavor="hive")
        assert by_number(ds.dataset(path, partitioning=names).to_table().to_pylist()) == TEXTS
    else:
        assert by_number(DeltaTable(path).to_pyarrow_table().to_pylist()) == TEXTS
        first = LogPosition(str(DeltaTable(path).metadata().id), 0)
        assert by_number(followed(kept, frame.schema, first)) == TEXTS


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("string", "''", "an empty text, which would become NULL in .*: write NULL .nullif. or"),
        ("string", "'__HIVE_DEFAULT_PARTITION__'", "the text __HIVE_DEFAULT_PARTITION__, which"),
        ("string", "'a\\0b'", "a text with the character NUL: remove it"),
        ("string", "repeat('x', 254)", "too long for the name of a directory .255 bytes.: shorten"),
        ("string", "repeat('%', 85)", "too long for the name of a directory"),
        ("string", "cast(X'ff' AS string)", "a text that is not UTF-8"),
        ("date", "'0000-12-31'", "a value outside of the years 1 to 9999, which .*: omit"),
        ("timestamp", "'+10000-01-01 00:00:00'", "a value outside of the years 1 to 9999"),
        ("timestamp_ntz", "'+10000-01-01 00:00:00'", "a value outside of the years 1 to 9999"),
    ],
)
def test_a_partition_value_that_no_directory_can_represent_is_refused(
    spark: SparkSession, tmp_path: Path, kind: str, value: str, said: str
) -> None:
    # Given a table with a batch
    kept = prepared(AppendTable(tmp_path / "t", ("c",)))
    good = spark.sql(f"SELECT 0 AS n, cast(NULL AS {kind}) AS c")
    kept.write(good, BatchId(0))

    # When a row of the next batch has such a value, then nothing of the batch is written
    with pytest.raises(PipelineError, match=f"^the partition column 'c' has .*{said}"):
        kept.write(good.union(spark.sql(f"SELECT 1, cast({value} AS {kind})")), BatchId(1))
    assert followed(kept, good.schema) == [{"n": 0, "c": None}]

    # And a batch without that value is
    assert kept.write(good, BatchId(1)) == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("date", [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(9999, 12, 31)]),
        ("timestamp_ntz", [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]),  # noqa: DTZ001
        ("decimal(38, 2)", [Decimal("-1.50"), Decimal("9" * 36 + ".99")]),
        ("double", [-0.5, 1e10, float("inf")]),
        ("boolean", [True, False, None]),
    ],
)
def test_typed_partition_values_are_read_back(
    spark: SparkSession, tmp_path: Path, kind: str, values: list[Any]
) -> None:
    frame = numbered(spark, values, kind)
    for kept in (
        prepared(AppendTable(tmp_path / "p", ("c",))),
        prepared(DeltaAppend(tmp_path / "d", partition_by=("c",))),
    ):
        kept.write(frame, BatchId(0))

        assert by_number(kept.finished(spark, frame.schema).collect()) == values
        assert by_number(followed(kept, frame.schema)) == values


@pytest.mark.parametrize("name", [".day", "_day"])
def test_a_partition_column_whose_directories_readers_skip_is_refused(
    tmp_path: Path, name: str
) -> None:
    for kept in (AppendTable(tmp_path / "a", (name,)), CompleteTable(tmp_path / "c", (name,))):
        with pytest.raises(PipelineError, match=f"{name}' begins with '{name[0]}', and readers"):
            kept.prepare()
    # A table that an earlier version began continues
    begun = AppendTable(tmp_path / "b", (name,))
    begun.state.mkdir(parents=True)
    give_checkpoint(begun.checkpoint)
    line = {"batch": 0, "query": "q1", "rows": 0, "files": []}
    (begun.state / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    begun.prepare()


# --- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_table_is_read_whatever_its_path(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    # Given a table of two batches, and another one whose name the first one's name matches as a pattern
    frame = spark.sql("SELECT 1 AS n, 'v' AS c")
    batches = 1 if kind.startswith(("complete", "update")) else 2
    (tmp_path / ODD.replace("[1]", "1").replace("{x,*}?", "xy")).mkdir()
    kept = prepared(KINDS[kind](tmp_path / ODD))
    for number in range(2):
        assert kept.write(frame, *([] if "complete" in kind else [BatchId(number)])) == 1

    # Then all readers find its rows, each once
    assert kept.finished(spark, frame.schema).collect() == frame.collect() * batches
    assert kept.rows() == batches
    if kind in ("append", "delta", "partitioned delta"):
        assert followed(kept, frame.schema) == [{"n": 1, "c": "v"}] * batches


@pytest.mark.parametrize("name", ["a%41", "a\\b", "a\nb", "a\x7f"])
def test_a_path_that_delta_cannot_open_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PipelineError, match=r"delta-rs would open another directory; name"):
        DeltaAppend(tmp_path / name).prepare()
    assert list(tmp_path.iterdir()) == []


# --- times and variants ---------------------------------------------------------------------------

FAR = ["0001-01-01 00:00:00", "1582-10-10 00:00:00.000001", "9999-12-31 23:59:59.999999"]


def micros(kept: AppendTable | CompleteTable) -> list[int]:
    """Return the times of a table as pyarrow reads them, in microseconds since 1970."""
    times = ds.dataset(kept.path.resolve()).to_table().column("c")
    found: list[int] = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return sorted(found)


def test_every_reader_finds_the_times_of_the_years_1_to_9999(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = numbered(spark, FAR, "string").selectExpr("n", "cast(c AS timestamp) AS c")
    moments = [row.us for row in frame.selectExpr("unix_micros(c) AS us").collect()]
    appended = prepared(AppendTable(tmp_path / "a", ()))
    made = prepared(CompleteTable(tmp_path / "c", ()))

    appended.write(frame, BatchId(0))
    made.write(frame)

    assert micros(appended) == micros(made) == moments
    read = appended.finished(spark, frame.schema)
    assert [row.us for row in read.selectExpr("unix_micros(c) AS us").collect()] == moments


def test_all_files_of_a_table_have_the_same_type_of_times(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Given a table that an earlier version began, which wrote times as INT96
    frame = spark.sql("SELECT 1 AS n, timestamp'2026-11-21 10:00:00' AS c")
    kept = prepared(AppendTable(tmp_path / "t", ()))
    (kept.state / "times.json").write_text('{"zone": "UTC"}')
    kept.write(frame, BatchId(0))
    kept.prepare()
    kept.write(frame, BatchId(1))

    types = {pq.ParquetFile(file).schema.column(1).physical_type for file in kept.files()}
    assert types == {"INT96"}
    assert kept.finished(spark, frame.schema).collect() == frame.collect() * 2
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"


def test_a_variant_is_read_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    # Given documents of which Spark would store some attributes in columns of their own
    texts = [json.dumps({"a": n, "b": "x", f"own{n}": n}) for n in range(30)]
    frame = numbered(spark, texts, "string").selectExpr("n", "parse_json(c) AS c")
    for kept in (prepared(AppendTable(tmp_path / "p", ())), prepared(DeltaAppend(tmp_path / "d"))):
        kept.write(frame, BatchId(0))

        found = [
            (row["n"], row["c"]["value"], row["c"]["metadata"])
            for row in followed(kept, frame.schema)
        ]
        written = [(n, bytes(c.value), bytes(c.metadata)) for n, c in frame.collect()]
        assert sorted(found) == written
        read = kept.finished(spark, frame.schema).selectExpr("n", "to_json(c) AS c").collect()
        assert list(map(json.loads, by_number(read))) == list(map(json.loads, texts))


# --- keys -----------------------------------------------------------------------------------------


def test_keys_that_delta_takes_for_the_same_are_one_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = prepared(DeltaUpdate(tmp_path / "t", ("k",)))
    zero = spark.sql("SELECT -0.0D AS k, 1 AS v")

    with pytest.raises(PipelineError, match=r"has the key \{'k': 0.0\} 2 times"):
        kept.write(zero.union(spark.sql("SELECT 0.0D, 2")), BatchId(0))

    assert kept.write(zero, BatchId(0)) == 1
    assert kept.write(spark.sql("SELECT 0.0D AS k, 2 AS v"), BatchId(1)) == 1
    assert [row.v for row in kept.finished(spark, zero.schema).collect()] == [2]


def test_an_update_takes_any_names_and_values(spark: SparkSession, tmp_path: Path) -> None:
    # Given a key whose name looks like a path, text with line separators, and a day after the year 9999
    kept = prepared(DeltaUpdate(tmp_path / "t", (".a",), partition_by=("part",)))
    frame = spark.sql(
        "SELECT 1 AS `.a`, 'first\\u2028second\\u0085third' AS text, date'+10000-01-01' AS day, 'p' AS part"
    )
    shown = ["`.a`", "text", "cast(day AS string) AS day", "part"]

    assert kept.write(frame, BatchId(0)) == 1
    assert kept.write(frame, BatchId(1)) == 1

    read = kept.finished(spark, frame.schema).selectExpr(*shown).collect()
    assert read == frame.selectExpr(*shown).collect()
    assert kept.rows() == 1
