"""A table that reads a table has that table's rows, each once: also those from before it was declared."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from headwater.errors import DataLoss, PipelineError
from headwater.spark.pipeline import Made, load, run
from headwater.spark.pipeline.backfill import backfill
from headwater.spark.pipeline.plan import plan
from headwater.spark.pipeline.sinks.parquet import AppendTable
from headwater.spark.pipeline.status import status
from headwater.spark.pipeline.table_sinks import TableSinks
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)

HEAD = """
[spark]
master = "local[2]"

[source.raw]
url = "${HW_TEST_URL}"
stream = "s"
schema = "id string, n bigint, at timestamp, part string, price decimal(10, 2)"
"""

BRONZE = """
[table.bronze]
mode = "append"
sql = "SELECT id, n, timestamp_seconds(n) AS at, concat('p ', n % 3, '/é') AS part, price FROM raw"
path = "tables/bronze"
sink = "SINK"
partition_by = ["part"]

[[table.bronze.expect]]
name = "not_seven"
predicate = "n <> 7"
action = "quarantine"
"""

SILVER = """
[table.silver]
mode = "append"
sql = "SELECT n * 2 AS twice, n, at, part, price FROM bronze WHERE n % 2 = 0"
path = "tables/silver"
"""

GOLD = """
[table.gold]
mode = "append"
sql = "SELECT twice FROM silver"
path = "tables/gold"
"""


@pytest.fixture(params=["parquet", pytest.param("delta", marks=pytest.mark.slice)])
def sink(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def file(tmp_path: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HW_TEST_URL", shop.url)
    return tmp_path / "tables.toml"


def declare(file: Path, *parts: str, sink: str = "parquet", more: str = "") -> None:
    file.write_text("".join([HEAD, *parts, more]).replace("SINK", sink))


def fill(shop: Shop, numbers: range) -> None:
    pipeline = shop.client.pipeline(transaction=False)
    for number in numbers:
        pipeline.xadd("s", {"n": number, "price": f"{number}.5"}, id=f"{number}-1")
    pipeline.execute()


def column(file: Path, table: str, name: str = "n") -> list[Any]:
    """Return a column's values in a table of sink parquet, in order."""
    found = ds.dataset(str(file.parent / "tables" / table), partitioning="hive").to_table()
    values: list[Any] = found.column(name).to_pylist()
    return sorted(values)


def silent(_line: str) -> None:
    return None


def rows_by(results: list[Made]) -> dict[str, int]:
    return {made.table: made.rows for made in results}


def evens(first: int, last: int) -> list[int]:
    return [n for n in range(first, last + 1) if n % 2 == 0]


def test_a_table_that_is_declared_later_has_all_rows_of_the_table_it_reads(
    spark: SparkSession, shop: Shop, file: Path, sink: str
) -> None:
    # Given a table of 1,050 rows, of which the stream still has 150
    fill(shop, range(1, 1052))
    declare(file, BRONZE, sink=sink)
    run(load(file), report=silent)
    shop.client.xtrim("s", minid="902", approximate=False)

    # When a table that reads it is declared, and a run has more rows for both
    declare(file, BRONZE, SILVER, GOLD, sink=sink)
    fill(shop, range(1052, 1101))
    made = rows_by(run(load(file), report=silent))

    # Then it has the rows of all runs, each with its values, and the tables that read it too
    assert made == {"bronze": 49, "silver": 550, "gold": 550}
    assert column(file, "silver") == evens(1, 1100)
    assert column(file, "gold", "twice") == [2 * n for n in evens(1, 1100)]
    table = ds.dataset(str(file.parent / "tables" / "silver")).to_table().to_pylist()
    for row in table:
        assert row["part"] == f"p {row['n'] % 3}/é"
        assert row["at"].timestamp() == row["n"]
        assert str(row["price"]) == f"{row['n']}.50"

    # When nothing is new, then nothing is added
    assert rows_by(run(load(file), report=silent)) == {"bronze": 0, "silver": 0, "gold": 0}
    found = {one.name: one for one in status(load(file)).tables}
    assert found["silver"].follows == ("bronze",)
    assert [(lag.source, lag.entries) for lag in found["silver"].lags] == [("bronze", 0)]


def test_rows_in_quarantine_are_not_read_and_those_of_a_backfill_are(
    spark: SparkSession, shop: Shop, file: Path, sink: str
) -> None:
    fill(shop, range(1, 21))
    later = HEAD.replace('stream = "s"', 'stream = "s"\nstartingId = "11-1"')
    file.write_text((later + BRONZE + SILVER.replace("WHERE n % 2 = 0", "")).replace("SINK", sink))
    run(load(file), report=silent)
    assert column(file, "silver") == list(range(11, 21))

    # When the table that it reads is backfilled
    with pytest.raises(
        PipelineError, match=r"table\.silver reads the rows of bronze\. Backfill bronze"
    ):
        backfill(load(file), "silver")
    backfill(load(file), "bronze", end="10-1")
    unread = [lag.entries for one in status(load(file)).tables for lag in one.lags]
    made = rows_by(run(load(file), report=silent))

    # Then the next run adds the rows that the other table kept
    assert unread == [0, 9]
    assert made == {"bronze": 0, "silver": 9}
    assert column(file, "silver") == [n for n in range(1, 21) if n != 7]

    # And a batch of which nothing was kept adds nothing
    shop.client.xadd("s", {"n": 7}, id="21-1")
    assert rows_by(run(load(file), report=silent)) == {"bronze": 0, "silver": 0}
    fill(shop, range(22, 24))
    assert rows_by(run(load(file), report=silent)) == {"bronze": 2, "silver": 2}


def test_a_pipeline_with_an_interval_follows_while_it_runs(
    spark: SparkSession, shop: Shop, file: Path
) -> None:
    declare(file, BRONZE, SILVER, more='\n[trigger]\ninterval = "100ms"\n')
    fill(shop, range(11, 21))
    stop = threading.Event()
    added: list[str] = []

    def follow(line: str) -> None:
        if line.startswith("silver:"):
            added.append(line)
            if len(added) == 1:
                fill(shop, range(21, 31))
            if column(file, "silver") == evens(11, 30):
                stop.set()

    run(load(file), report=follow, stop=stop)

    assert column(file, "silver") == evens(11, 30)


def test_a_table_whose_checkpoint_reads_the_source_continues_there(
    spark: SparkSession, shop: Shop, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a table that was begun when tables did not follow others
    fill(shop, range(11, 31))
    declare(file, BRONZE, SILVER)
    with monkeypatch.context() as before:
        before.setattr(TableSinks, "follows", lambda _self, _name: False)
        run(load(file), report=silent)
    assert checkpoint_sources(file, "silver") == ["raw"]

    # When it runs
    fill(shop, range(31, 41))
    made = rows_by(run(load(file), report=silent))

    # Then it has each row once, and the plan says what it reads
    assert made == {"bronze": 10, "silver": 5}
    assert column(file, "silver") == evens(11, 40)
    planned = {one.table.name: one for one in plan(load(file), analyse=False).tables}
    assert (planned["silver"].follows, planned["silver"].through) == ([], ["bronze"])
    assert planned["silver"].sources == ["raw"]

    # When it is removed with its checkpoint, then it reads the other table's rows
    shutil.rmtree(file.parent / "tables" / "silver")
    run(load(file), report=silent)
    assert column(file, "silver") == evens(11, 40)
    assert checkpoint_sources(file, "silver") == ["bronze"]


def checkpoint_sources(file: Path, table: str) -> list[str]:
    return TableSinks(load(file)).streamed[table].checkpoint.sources()


@pytest.mark.parametrize(
    ("sink", "change"),
    [
        ("parquet", "rebuilt"),
        pytest.param("parquet", "gone", marks=pytest.mark.slice),
        pytest.param("delta", "rebuilt", marks=pytest.mark.slice),
    ],
)
def test_a_table_that_was_made_again_is_an_error_of_those_that_read_it(
    spark: SparkSession, shop: Shop, file: Path, sink: str, change: str
) -> None:
    fill(shop, range(11, 31))
    declare(file, BRONZE, SILVER, sink=sink)
    run(load(file), report=silent)
    shutil.rmtree(file.parent / "tables" / "bronze")
    if change == "rebuilt":
        declare(file, BRONZE, sink=sink)
        run(load(file), report=silent)
        declare(file, BRONZE, SILVER, sink=sink)
    else:
        shop.client.delete("s")
        shop.client.xgroup_create("s", "g", mkstream=True)

    with pytest.raises(
        DataLoss, match=r"table silver: the table at .*bronze (was removed|is gone)"
    ):
        run(load(file), report=silent)
    assert column(file, "silver") == evens(11, 30)


def test_a_driver_that_ends_between_table_and_commit_adds_each_row_once(
    spark: SparkSession, shop: Shop, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a run that ended after the rows were in the table, before Spark noted that
    fill(shop, range(11, 31))
    declare(file, BRONZE, SILVER)

    append = AppendTable._append

    def failing(table: AppendTable, batch: Any) -> None:
        append(table, batch)
        if table.path.name == "silver":
            raise OSError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(AppendTable, "_append", failing)
        with pytest.raises(PipelineError, match="planted"):
            run(load(file), report=silent)

    # When it runs again, with more rows
    fill(shop, range(31, 41))
    run(load(file), report=silent)

    # Then each is there once
    assert column(file, "silver") == evens(11, 40)


@pytest.fixture
def delta(spark: SparkSession, shop: Shop, file: Path) -> Any:
    """Make both tables, the one that is read with sink delta, and return that as delta-rs opens it."""
    import deltalake

    fill(shop, range(11, 31))
    declare(file, BRONZE, SILVER, sink="delta")
    run(load(file), report=silent)
    return deltalake.DeltaTable(str(file.parent / "tables" / "bronze"))


@pytest.mark.slice
def test_files_that_are_only_rewritten_have_no_rows(delta: Any, shop: Shop, file: Path) -> None:
    fill(shop, range(31, 41))
    run(load(file), report=silent)
    delta.update_incremental()
    delta.optimize.compact()
    delta.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    fill(shop, range(41, 51))
    made = rows_by(run(load(file), report=silent))

    assert made == {"bronze": 10, "silver": 5}
    assert column(file, "silver") == evens(11, 50)

    # When a table begins after that, then it has the rows too
    shutil.rmtree(file.parent / "tables" / "silver")
    run(load(file), report=silent)
    assert column(file, "silver") == evens(11, 50)


@pytest.mark.slice
def test_rows_that_are_deleted_are_an_error(delta: Any, file: Path) -> None:
    delta.delete("n < 15")
    with pytest.raises(
        PipelineError, match=r"table silver: version \d+ of the Delta table at .* removes"
    ):
        run(load(file), report=silent)


@pytest.mark.slice
def test_a_log_that_expired_before_it_was_read_is_data_loss(
    delta: Any, shop: Shop, file: Path
) -> None:
    # Given commits that one table has read and the other has not, whose log expires
    fill(shop, range(31, 41))
    declare(file, BRONZE, sink="delta")
    run(load(file), report=silent)
    fill(shop, range(41, 51))
    run(load(file), report=silent)
    delta.update_incremental()
    delta.create_checkpoint()
    for version in range(delta.version()):
        (file.parent / "tables" / "bronze" / "_delta_log" / f"{version:020d}.json").unlink(
            missing_ok=True
        )

    # Then the table that reads it fails; one that begins reads what is there
    declare(file, BRONZE, SILVER, sink="delta")
    with pytest.raises(DataLoss, match="no longer has the log of version"):
        run(load(file), report=silent)
    shutil.rmtree(file.parent / "tables" / "silver")
    run(load(file), report=silent)
    assert column(file, "silver") == evens(11, 50)


def test_tables_share_a_group_through_a_table_that_reads_it(
    spark: SparkSession, shop: Shop, file: Path
) -> None:
    fill(shop, range(11, 31))
    declare(file, BRONZE, SILVER, SILVER.replace("silver", "copper"))
    file.write_text(file.read_text().replace('stream = "s"', 'stream = "s"\ngroup = "g"'))

    made = rows_by(run(load(file), report=silent))

    assert made == {"bronze": 20, "silver": 10, "copper": 10}
    assert shop.client.xpending("s", "g")["pending"] == 0


def test_a_watermark_drops_no_history(spark: SparkSession, shop: Shop, file: Path) -> None:
    # Given a table of several batches whose times rise by more than the watermark's delay
    declare(file, BRONZE)
    file.write_text(
        file.read_text().replace('stream = "s"', 'stream = "s"\nmaxEntriesPerTrigger = 10')
    )
    for first in (11, 2_000, 40_000):
        fill(shop, range(first, first + 10))
    run(load(file), report=silent)
    seconds = """
[table.seconds]
mode = "append"
sql = "SELECT window.start AS second, count(*) AS n FROM bronze GROUP BY window(at, '1 second')"
path = "tables/seconds"
watermark = { column = "at", delay = "1s" }
"""

    # When a table with a watermark reads it, and then later rows
    declare(file, BRONZE, seconds)
    run(load(file), report=silent)
    fill(shop, range(90_000, 90_001))
    run(load(file), report=silent)

    # Then every row before these is in a group
    assert len(column(file, "seconds", "second")) == 30
