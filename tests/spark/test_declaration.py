"""A pipeline's file is fully checked: each mistake is reported with its key and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from headwater.errors import HeadwaterError, PipelineError
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import OPTIONS
from headwater.spark.pipeline.declaration.loading import load, read
from headwater.spark.pipeline.declaration.model import Pipeline
from headwater.spark.pipeline.declaration.sql import tables_read
from headwater.spark.pipeline.sinks.layout import wrong_column
from headwater.spark.pipeline.table_sinks import TableSinks

GOOD = """
[source.orders]
url = "redis://localhost:6379"
stream = ["orders", "orders.eu"]
startingId = { orders = "5-0" }
maxEntriesPerTrigger = 1000
failOnDataLoss = false
schema = "order_id bigint, item string, id string"

[input.items]
path = "items.csv"
schema = "item string, category string"
options = { nullValue = "NA", samplingRatio = 0.5 }

[table.by_category]
mode = "complete"
sql = "SELECT category, count(*) AS n FROM Sales GROUP BY category"
path = "tables/by_category"

[table.sales]
mode = "append"
sql = "SELECT o.*, i.category FROM orders o LEFT JOIN items i USING (item)"
path = "tables/sales"
partition_by = ["category"]

[trigger]
interval = "1.5 s"

[spark]
master = "local[2]"
conf.spark.sql.ansi.enabled = true
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "items.csv").write_text("item,category\n")
    return tmp_path


def written(directory: Path, text: str) -> Path:
    file = directory / "orders.toml"
    file.write_text(text)
    return file


def refused(directory: Path, text: str) -> str:
    with pytest.raises(PipelineError) as raised:
        load(written(directory, text))
    assert str(raised.value).startswith(str(directory / "orders.toml"))
    return str(raised.value)


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_a_complete_declaration_is_read(directory: Path) -> None:
    pipeline: Pipeline = load(written(directory, GOOD))

    assert pipeline.sources["orders"].options == {
        "url": "redis://localhost:6379",
        "stream": '["orders", "orders.eu"]',
        "startingId": '{"orders": "5-0"}',
        "maxEntriesPerTrigger": "1000",
        "failOnDataLoss": "false",
    }
    items = pipeline.inputs["items"]
    assert (items.path, items.format) == (directory / "items.csv", "csv")
    assert items.options == {"header": "true", "nullValue": "NA", "samplingRatio": "0.5"}
    assert list(pipeline.tables) == ["sales", "by_category"]
    assert pipeline.tables["sales"].reads == ("orders", "items")
    assert pipeline.tables["by_category"].reads == ("sales",)
    assert pipeline.tables["sales"].path == directory / "tables" / "sales"
    assert (pipeline.interval, pipeline.master) == (1.5, "local[2]")
    assert pipeline.conf == {"spark.sql.ansi.enabled": "true"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[trigger]", "[triger]", "triger: unknown key. Did you mean 'trigger'?"),
        ("maxEntriesPerTrigger", "maxEntries", "source.orders.maxEntries: unknown key. Did you"),
        ("failOnDataLoss = false", "inferSchema = true", "source.orders.inferSchema: is for spark"),
        ("failOnDataLoss = false", "failOnDataLoss = 3", "'3' is neither true nor false"),
        ("maxEntriesPerTrigger = 1000", "maxEntriesPerTrigger = 1.5", "not a whole number"),
        (
            "maxEntriesPerTrigger = 1000",
            "maxEntriesPerTrigger = 2026-11-21",
            "is not a valid option value",
        ),
        (
            '"NA"',
            "2026-11-21",
            "input.items.options.nullValue: datetime.date(2026, 11, 21) is not",
        ),
        ("order_id bigint", "order_id bigit", "source.orders.schema: column 'order_id'"),
        ("id string", "id bigint", "the column 'id' is the entry's metadata"),
        ('url = "redis:', 'url = "http:', "does not begin with one of redis://"),
        ("items.csv", "itmes.csv", "itmes.csv does not exist"),
        ('"items.csv"', '"s3://items.csv"', "is a url"),
        ("partition_by", "partitionBy", "table.sales.partitionBy: unknown key. Did you mean"),
        ('["category"]', '"category"', "table.sales.partition_by: 'category' is not a list"),
        ('mode = "append"', 'mode = "upsert"', "'upsert' is not one of append, complete, update"),
        ('mode = "append"', 'mode = "update"', "sinks that support it: delta"),
        (
            'mode = "append"',
            'mode = "update"\nsink = "delta"',
            "table.sales.key: is missing; expected the col",
        ),
        (
            'mode = "append"',
            'mode = "append"\nkey = ["id"]',
            "is not a key of the sink parquet, but of delta",
        ),
        (
            'mode = "append"',
            'mode = "append"\nsink = "stream"',
            "table.sales.path: is not a key of the",
        ),
        ('mode = "append"\n', "", "table.sales.mode: is missing; expected one of append, complete"),
        ('path = "tables/sales"', "", "table.sales.path: is missing"),
        (
            'path = "tables/sales"',
            'path = "tables/sales"\nsink = "hive"',
            "'hive' is not one of parquet, delta",
        ),
        ('path = "tables/sales"', 'path = "tables/by_category/x"', "is in table.by_category's"),
        ("1.5 s", "soon", "trigger.interval: 'soon' is not a duration"),
        ("[spark]", "[spark]\ncores = 2", "spark.cores: unknown key. Keys here are master, app"),
        ("conf.spark.sql", "conf.sql", "spark.conf.sql.ansi.enabled: names of Spark's"),
        ("FROM orders o", "FROM ordres o", "reads 'ordres', which is not a source, input or"),
        ("FROM Sales", "FROM orders", "reads the source 'orders'; entries trimmed there"),
        ("FROM orders o LEFT JOIN items i", "FROM items o JOIN items i", "reads no source"),
        ("FROM orders o", "FROM by_category o", "reads 'by_category', a table of mode complete"),
        ("[table.sales]", "[table.orders]", "source.orders has that name too"),
        ("[table.sales]", '[table."my sales"]', "expected a name that SQL can use"),
        ("[input.items]", "[[input.items]]", "input.items: expected a table"),
        ("sql = ", "sq = ", "table.by_category.sql: expected an SQL query"),
        ("1.5 s", "0s", "trigger.interval: '0s' is not between 1ms and 365d"),
        ("1.5 s", "9999999999999999999d", "is not between 1ms and 365d"),
        ('["orders", "orders.eu"]', "[]", "source.orders.stream: [] is not a name, a list of"),
        ('["orders", "orders.eu"]', "3", "source.orders.stream: 3 is not a name, a list of"),
        ('["category"]', '["category", "category"]', "partition_by: has 'category' twice"),
        ('["category"]', '["category", " "]', "partition_by: one of the names is empty"),
        ('"tables/sales"', '" "', "table.sales.path: is missing; expected a path"),
        ('"tables/sales"', '"a\\u0000b"', "cannot be a path: embedded null byte"),
        ('"tables/sales"', f'"{"x" * 300}"', "cannot be a path: File name too long"),
        ('master = "local[2]"', 'master = ""', "spark.master: expected a string"),
        ('schema = "item string, category string"', 'format = ""', "input.items.format: '' is not"),
    ],
)
def test_a_mistake_is_reported_with_its_key_and_remedy(
    directory: Path, old: str, new: str, said: str
) -> None:
    assert said in refused(directory, changed(old, new))


ODD: tuple[Any, ...] = (
    *("", " ", "0s", "-1s", "1e9d", "a`b", "a\0b", "x" * 300, "*", "[", "a,", "é", "${HW_NOT_SET}"),
    *(
        "/dev/null",
        "items.csv/x",
        "~nobody/x",
        "s3://b",
        0,
        -1,
        10**30,
        1.5,
        float("nan"),
        True,
        False,
    ),
    *([], {}, [""], ["e", "f*"], ["a", "a"], [1], [[]], {"a": 1}),
    *(datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), time(1)),
)
"""Values of which each is wrong for most keys."""


def whole() -> dict[str, Any]:
    """Return a declaration with every section and every key."""
    stream = {"url": "redis://localhost", "stream": "orders", "schema": "n int, at timestamp"}
    checks = [{"name": "e", "predicate": "n > 0", "action": "quarantine"}]
    late = {"column": "at", "delay": "10m", "of": "orders"}
    sql, kept = "SELECT * FROM orders", "SELECT * FROM sales"
    tables = {
        "sales": {"mode": "append", "sql": sql, "sink": "delta", "path": "t/sales"}
        | {"partition_by": ["n"], "checkpoint": "c/sales", "watermark": late}
        | {"expect": checks, "quarantine": "t/q"},
        "up": {"mode": "update", "sql": sql, "sink": "delta", "path": "t/up", "key": ["n"]},
        "out": {"mode": "append", "sql": sql, "sink": "stream", "url": "redis://localhost"}
        | {"stream": "out", "checkpoint": "c/out", "options": {"maxlen": 10}},
        "shown": {"mode": "append", "sql": sql, "sink": "console", "checkpoint": "c/shown"}
        | {"options": {"rows": 10}},
        "all": {"mode": "complete", "sql": kept, "path": "t/all"},
    }
    return {
        "source": {"orders": dict.fromkeys(OPTIONS, "") | stream},
        "input": {"items": {"path": "items.csv", "format": "csv", "options": {"header": "true"}}},
        "table": tables,
        "dead_letters": {"path": "t/dead", "streams": ["x"]},
        "trigger": {"interval": "10s"},
        "spark": {"master": "local[2]", "app": "x", "conf": {"spark.a": "2"}},
        "archive": {"path": "arch", "sources": ["orders"], "keep": "1d", "trim": True}
        | {"forget_queries_after": "8d"},
    }


def keys(values: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in values.items() if isinstance(values, dict) else enumerate(values):
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from keys(value, (*above, key))


@pytest.mark.slow
def test_no_odd_value_of_any_key_ends_in_a_traceback(directory: Path) -> None:
    found: list[str] = []
    for place in keys(whole()):
        for odd in ODD:
            # Given a declaration with one odd value
            document = whole()
            for option in OPTIONS:
                if place != ("source", "orders", option) and option not in ("url", "stream"):
                    del document["source"]["orders"][option]
            holder: Any = document
            for step in place[:-1]:
                holder = holder[step]
            holder[place[-1]] = odd

            # When it is read and the places of its tables are checked, then a mistake is one sentence
            said = ""
            try:
                TableSinks(read(directory / "orders.toml", document)).check()
            except HeadwaterError as error:
                said = str(error)
            assert "\n" not in said or "mistakes\n" in said, (place, odd)
            found.append(said)
    assert 300 < found.count("") < len(found) / 2


def test_a_file_is_not_the_directory_of_a_table(directory: Path) -> None:
    said = r"items\.csv is a file, but a directory is needed; name another path"
    for new in ("items.csv", "items.csv/below"):
        for old in ('"tables/sales"', '"tables/by_category"'):
            pipeline = load(written(directory, changed(old, f'"{new}"')))
            with pytest.raises(PipelineError, match=f"{said}|is not a table of mode complete"):
                TableSinks(pipeline).check()
    archive = f'{GOOD}\n[archive]\npath = "items.csv"\n'
    with pytest.raises(PipelineError, match=rf"archive\.path: .*{said}"):
        TableSinks(load(written(directory, archive))).check()


def test_all_mistakes_are_reported_at_once(directory: Path) -> None:
    text = changed("[trigger]", "[triger]").replace("partition_by", "partition")

    said = refused(directory, text)

    assert "2 mistakes" in said
    assert "triger" in said
    assert "table.sales.partition:" in said


def test_a_source_with_a_group_is_for_one_streamed_table(directory: Path) -> None:
    # Given a group, which gives each entry to one member
    text = changed("failOnDataLoss = false", 'group = "tables"')
    load(written(directory, text))

    # When a second table reads the first one's rows, then only one reads the source
    late = """
[table.late]
mode = "append"
sql = "SELECT * FROM sales"
path = "tables/late"
"""
    load(written(directory, text.replace("[spark]", late + "[spark]", 1)))

    # When it reads the source, then it is refused
    said = refused(
        directory, text.replace("[spark]", late.replace("FROM sales", "FROM orders") + "[spark]", 1)
    )
    assert "source.orders.group: the tables sales, late each read this source" in said


def test_tables_that_read_each_other_in_a_circle_are_refused(directory: Path) -> None:
    text = changed("FROM Sales", "FROM more") + (
        '\n[table.more]\nmode = "complete"\nsql = "SELECT * FROM by_category"\npath = "more"\n'
    )

    assert "in a circle: " in refused(directory, text.replace("[spark]", "[spark]", 1))


def test_invalid_toml_is_reported_with_its_line(directory: Path) -> None:
    assert "invalid TOML: " in refused(directory, "[source.orders\nurl = 1")
    assert "at line 1" in refused(directory, "[source.orders\nurl = 1")
    assert "declares no table" in refused(directory, "")
    with pytest.raises(PipelineError, match="cannot be read: No such file"):
        load(directory / "none.toml")


def test_a_missing_environment_variable_is_reported_once(directory: Path) -> None:
    said = refused(directory, changed("redis://localhost:6379", "${HW_NOT_SET}"))

    assert "source.orders.url: HW_NOT_SET is not set in the environment" in said
    assert "mistakes" not in said


def test_environment_variables_are_expanded_except_in_sql(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = changed("redis://localhost:6379", "redis://:${HW_PASSWORD}@localhost").replace(
        "SELECT category", "SELECT '${HW_PASSWORD}' AS kept, category"
    )

    assert "source.orders.url: HW_PASSWORD is not set in the environment" in refused(
        directory, text
    )
    monkeypatch.setenv("HW_PASSWORD", "hunter2")
    pipeline = load(written(directory, text))
    assert pipeline.sources["orders"].options["url"] == "redis://:hunter2@localhost"
    assert "${HW_PASSWORD}" in pipeline.tables["by_category"].sql
    assert "hunter2" not in repr(pipeline)


def test_overrides_replace_and_add_values(directory: Path) -> None:
    file = written(directory, GOOD)

    pipeline = load(
        file,
        overrides=[
            "source.orders.url=redis://127.0.0.1:7000",
            "source.orders.maxEntriesPerTrigger=5",
            "spark.conf.spark.sql.ansi.enabled=false",
            "trigger.interval=2s",
        ],
    )

    assert pipeline.sources["orders"].options["url"] == "redis://127.0.0.1:7000"
    assert pipeline.sources["orders"].options["maxEntriesPerTrigger"] == "5"
    assert pipeline.conf["spark.sql.ansi.enabled"] == "false"
    assert pipeline.interval == 2
    with pytest.raises(PipelineError, match="is not key=value"):
        load(file, overrides=["source.orders.url"])
    with pytest.raises(PipelineError, match="url is a value in the file"):
        load(file, overrides=["source.orders.url.x=1"])
    with pytest.raises(PipelineError, match=r"source\.orders\.ulr: unknown key"):
        load(file, overrides=["source.orders.ulr=1"])


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM a", ["a"]),
        ("select * from a, `b c` x, d AS y where z in (select q from e)", ["a", "b c", "d", "e"]),
        ("SELECT * FROM a JOIN b ON a.x = b.x LEFT JOIN c USING (y)", ["a", "b", "c"]),
        ("SELECT * FROM (SELECT * FROM a) t CROSS JOIN b", ["a", "b"]),
        ("SELECT extract(day FROM t), trim(BOTH ' ' FROM u), substring(v FROM 2) FROM a", ["a"]),
        ("SELECT a IS DISTINCT FROM b, c IS NOT DISTINCT FROM d FROM e", ["e"]),
        ("SELECT DISTINCT x FROM a", ["a"]),
        (
            "WITH x AS (SELECT * FROM a), y(n) AS (SELECT * FROM b) SELECT * FROM x JOIN y",
            ["a", "b"],
        ),
        ("SELECT 'from x' -- from y\n, /* from z */ 1 FROM a UNION ALL SELECT 1 FROM a", ["a"]),
        ("SELECT * FROM range(10), a", ["a"]),
        ("SELECT * FROM parquet.`/x` JOIN a", ["a"]),
        ("SELECT * FROM a LATERAL VIEW explode(l) t AS x", ["a"]),
        ("SELECT * FROM a, LATERAL (SELECT 1)", ["a"]),
        ("FROM a SELECT x", ["a"]),
        ("SELECT 1", []),
    ],
)
def test_the_tables_that_a_query_reads_are_found(sql: str, tables: list[str]) -> None:
    assert tables_read(sql) == tables


@pytest.mark.parametrize("stream", ["orders.*", "orders.dear", '["orders", "orders.dear"]'])
def test_a_table_is_not_written_to_a_stream_that_it_reads(directory: Path, stream: str) -> None:
    # Given a table that is made from a source, through another table, and written to one of its streams
    text = f"""
[source.orders]
url = "redis://localhost:6379"
stream = {stream if stream.startswith("[") else repr(stream)}

[table.dear]
mode = "append"
sql = "SELECT * FROM all_orders WHERE price > 100"
sink = "stream"
url = "redis://localhost:6379"
stream = "orders.dear"
checkpoint = "checkpoints/dear"

[table.all_orders]
mode = "append"
sql = "SELECT * FROM orders"
path = "tables/all"
"""

    # When the file is read, then it is refused: the table would read its own rows endlessly
    assert "table.dear.stream: 'orders.dear' is one of the streams of [source.orders]" in refused(
        directory, text
    )

    # And one that the source does not read is accepted
    load(written(directory, text.replace('"orders.dear"\nche', '"dear"\nche')))


@pytest.mark.parametrize(
    ("line", "forgotten_ms"),
    [
        ("", 8 * 86_400_000),
        ('forget_queries_after = "2d"', 2 * 86_400_000),
        ('forget_queries_after = "never"', None),
    ],
)
def test_an_archive_forgets_queries_after_eight_days_unless_the_file_says_otherwise(
    directory: Path, line: str, forgotten_ms: int | None
) -> None:
    text = f'{GOOD}\n[archive]\npath = "archive"\n{line}\n'

    archive = load(written(directory, text)).archive

    assert archive is not None
    assert archive.forget_queries_after_ms == forgotten_ms


def columns(text: str) -> StructType:
    """Return the schema of ``text``, with columns that DDL of the source does not have."""
    others = {
        "variant": VariantType(),
        "interval day": DayTimeIntervalType(0, 0),
        "interval year": YearMonthIntervalType(0, 0),
    }
    made = StructType()
    for part in re.split(r", (?![^<]*>)", text):
        name, _space, kind = part.partition(" ")
        type_ = others.get(kind) or parse_schema(f"c {kind}")["c"].dataType
        made.add(name.strip("`").replace("``", "`"), type_)
    return made


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            "k struct<start: timestamp>, v int",
            "take a part of it as the key, like SELECT k.start AS start",
        ),
        (
            "k array<int>, v int",
            "rows cannot be compared by 'k', which is an array<int>: make it a string, like",
        ),
        ("k map<string, int>, v int", "make it a string, like SELECT to_json(k) AS k"),
        ("k variant, v int", "rows cannot be compared by 'k', which is a variant"),
        ("k string, `a``b` int", "the column 'a`b' has a backtick in its name, which delta tables"),
        ("k string, v int, V int", "two columns are named 'V': rename one with AS"),
        ("k string, v interval day", "CAST(v AS string)"),
        ("k string, v struct<a: array<int>>", ""),
    ],
)
def test_a_column_that_an_update_cannot_write_is_refused_with_the_remedy(
    schema: str, said: str
) -> None:
    wrong = wrong_column(columns(schema), sink="delta", key=("k",), partition_by=())

    assert said in (wrong or ("", ""))[1]
    assert (wrong is None) == (not said)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("d array<int>, v int", "a directory cannot be named after 'd', which is an array<int>"),
        ("d date", "names all columns, so the files would have none"),
        ("d date, v interval year", "which parquet tables cannot have: CAST(v AS string)"),
        ("d date, v interval day", ""),
        ("d binary, v int", "a directory cannot be named after 'd', which is a binary"),
        ("d interval day, v int", "cannot be named after 'd', which is an interval day"),
    ],
)
def test_a_column_that_files_cannot_have_is_refused_with_the_remedy(schema: str, said: str) -> None:
    wrong = wrong_column(columns(schema), sink="parquet", key=(), partition_by=("d",))

    assert said in (wrong or ("", ""))[1]
    assert (wrong is None) == (not said)


SAME = StructType().add("a", "integer").add("A", "integer")
NUL = StructType().add("a\0", "integer")


@pytest.mark.parametrize(
    ("kind", "sink", "said"),
    [
        (SAME, "parquet", "two columns are named 'v.A': rename one with AS"),
        (ArrayType(SAME), "delta", "two columns are named 'v.element.A'"),
        (MapType(StringType(), SAME), "parquet", "two columns are named 'v.value.A'"),
        (NUL, "delta", r"the column 'v.a\x00' has the character NUL in its name, which delta"),
        (ArrayType(DayTimeIntervalType(0, 0)), "delta", "'v.element' is an interval day, which"),
        (
            ArrayType(YearMonthIntervalType(0, 0)),
            "parquet",
            "tables cannot have: CAST(v AS string)",
        ),
        (ArrayType(DayTimeIntervalType(0, 0)), "parquet", ""),
    ],
)
def test_a_part_of_a_column_that_would_not_be_read_back_is_refused(
    kind: DataType, sink: str, said: str
) -> None:
    schema = StructType().add("k", "integer").add("v", kind)

    wrong = wrong_column(schema, sink=sink, key=(), partition_by=())

    assert said in (wrong or ("", ""))[1]
    assert (wrong is None) == (not said)


def test_rows_are_not_merged_into_partitions_of_decimals() -> None:
    # delta-rs 1.6 writes the partition value -1.50 as -1.-50, and then no reader can open the table.
    schema = StructType().add("k", "integer").add("price", "decimal(10, 2)")

    wrong = wrong_column(schema, sink="delta", key=("k",), partition_by=("price",))

    assert wrong is not None
    assert wrong[0] == "partition_by"
    assert "CAST(price AS string)" in wrong[1]
    assert wrong_column(schema, sink="delta", key=(), partition_by=("price",)) is None
