"""A backfill adds entries that a table has not read, once, and none that it has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from headwater.errors import PipelineError
from headwater.spark.pipeline import load, run
from headwater.spark.pipeline.backfill import backfill
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.sinks import THERE_ALREADY
from headwater.spark.pipeline.sinks.parquet import AppendTable
from headwater.spark.pipeline.table_sinks import TableSinks
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)

FILE = """
[spark]
master = "local[2]"

[source.raw]
url = "${HW_TEST_URL}"
stream = "s"
startingId = "51-1"
schema = "id string, n bigint"

[table.numbers]
mode = "append"
sql = "SELECT * FROM raw"
path = "tables/numbers"

[[table.numbers.expect]]
name = "not_seven"
predicate = "n <> 7"
action = "drop"
"""


@pytest.fixture
def file(tmp_path: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HW_TEST_URL", shop.url)
    path = tmp_path / "numbers.toml"
    path.write_text(FILE)
    return path


def numbers(file: Path) -> list[int]:
    table = ds.dataset(str(file.parent / "tables" / "numbers")).to_table()
    found: list[int] = table.column("n").to_pylist()
    return sorted(found)


def silent(_line: str) -> None:
    return None


def test_entries_from_before_a_table_began_are_added_once(
    spark: SparkSession, shop: Shop, file: Path
) -> None:
    shop.add("s", range(1, 101))
    with pytest.raises(PipelineError, match="has read nothing yet"):
        backfill(load(file), "numbers")
    run(load(file), report=silent)
    assert numbers(file) == list(range(51, 101))

    # When a part is backfilled, and then the same part again
    part = backfill(load(file), "numbers", start="21", end="30-1")
    again = backfill(load(file), "numbers", start="21", end="30-1")

    assert (part.outcome.rows, again.outcome.rows) == (10, THERE_ALREADY)
    assert numbers(file) == [*range(21, 31), *range(51, 101)]

    # Then neither that part nor entries that the table has read can be backfilled
    with pytest.raises(PipelineError, match=r"21-0 to 30-1 was backfilled already"):
        backfill(load(file), "numbers")
    with pytest.raises(PipelineError, match=r"the table has the entries after 51-0"):
        backfill(load(file), "numbers", start="31-1", end="60-1")
    with pytest.raises(PipelineError, match=r"has read all entries from 70-1 on"):
        backfill(load(file), "numbers", start="70-1")
    with pytest.raises(PipelineError, match=r"--from 31-1 is after --to 30-1"):
        backfill(load(file), "numbers", start="31-1", end="30-1")

    # And the rest, up to where the table begins, passes through its expectations
    rest = backfill(load(file), "numbers", start="31-1")
    first = backfill(load(file), "numbers", end="20-1")
    assert (rest.outcome.rows, first.outcome.rows, first.outcome.dropped) == (20, 19, 1)
    shop.add("s", range(101, 111))
    run(load(file), report=silent)
    assert numbers(file) == [n for n in range(1, 111) if n != 7]


def test_an_interrupted_backfill_is_completed_by_repeating_it(
    spark: SparkSession, shop: Shop, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("s", range(1, 61))
    run(load(file), report=silent)

    # Given a driver that dies when the files are in place but not in the manifest
    def die(*_arguments: Any) -> Any:
        raise RuntimeError("power loss")

    with monkeypatch.context() as patched:
        patched.setattr(AppendTable, "_append", die)
        with pytest.raises(RuntimeError):
            backfill(load(file), "numbers", start="41-1")
    assert numbers(file) == list(range(41, 61)), "as seen by a reader that lists the directory"

    with pytest.raises(
        PipelineError, match=r"is partly backfilled already.* --from 41-1 --to 51-0"
    ):
        backfill(load(file), "numbers", start="31-1")
    assert backfill(load(file), "numbers", start="41-1", end="51-0").outcome.rows == 10
    assert numbers(file) == list(range(41, 61))


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT count(*) AS n FROM raw GROUP BY window(ts, '1 minute')", "aggregates rows"),
        ("SELECT DISTINCT n, ts FROM raw", "removes rows that are equal"),
        ("SELECT a.n, a.ts FROM raw a JOIN raw b ON a.n = b.n AND a.ts = b.ts", "joins streams"),
    ],
)
def test_sql_that_combines_entries_is_refused(
    spark: SparkSession, shop: Shop, file: Path, sql: str, why: str
) -> None:
    # Given a table whose beginning is known
    shop.add("s", range(1, 61))
    text = FILE.replace("SELECT * FROM raw", sql).replace(
        "n bigint", "n bigint, timestamp timestamp"
    )
    file.write_text(text.replace("ts", "timestamp").partition("[[table")[0])
    checkpoint = TableSinks(load(file)).streamed["numbers"].checkpoint
    checkpoint.note_sources(["raw"])
    note_first_batch(checkpoint)

    with pytest.raises(PipelineError, match=rf"table\.numbers\.sql: the SQL {why}"):
        backfill(load(file), "numbers")


def note_first_batch(checkpoint: Checkpoint) -> None:
    (checkpoint.path / "offsets").mkdir(parents=True)
    (checkpoint.path / "metadata").write_text('{"id": "q"}')
    (checkpoint.path / "offsets" / "0").write_text(
        'v1\n{}\n{"s": {"from": "51-0", "added_from": 50, "to": "60-1", "added_to": 60}}'
    )
    checkpoint.note_beginning()


def test_an_impossible_backfill_is_refused_with_the_reason(shop: Shop, file: Path) -> None:
    file.write_text(
        FILE
        + '\n[table.sums]\nmode = "complete"\nsql = "SELECT sum(n) AS n FROM numbers"\npath = "sums"\n'
    )

    with pytest.raises(PipelineError, match=r"table\.sums is rebuilt by every run"):
        backfill(load(file), "sums")
    with pytest.raises(
        PipelineError, match="there is no table 'nubmers'; tables are numbers, sums"
    ):
        backfill(load(file), "nubmers")
    grouped = load(file, overrides=["source.raw.group=g"])
    with pytest.raises(PipelineError, match="source raw, which has a group"):
        backfill(grouped, "numbers")
