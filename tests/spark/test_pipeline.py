"""A pipeline's tables contain each entry once, however the previous run ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from headwater.errors import DataLoss, PipelineError
from headwater.spark.pipeline import Made, load, run
from headwater.spark.pipeline.sinks import parquet
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
schema = "id string, n bigint, item string"
maxEntriesPerTrigger = 400

[input.items]
path = "items.csv"

[table.sales]
mode = "append"
sql = "SELECT r.*, i.category FROM raw r LEFT JOIN items i USING (item)"
path = "tables/sales"
partition_by = ["category"]

[table.big]
mode = "append"
sql = "SELECT id, n FROM sales WHERE n > 900"
path = "tables/big"

[table.totals]
mode = "complete"
sql = "SELECT category, count(*) AS n, sum(s.n) AS total FROM sales s GROUP BY category"
path = "tables/totals"

[table.best]
mode = "complete"
sql = "SELECT category FROM totals ORDER BY total DESC LIMIT 1"
path = "tables/best"
"""


@pytest.fixture
def file(tmp_path: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HW_TEST_URL", shop.url)
    (tmp_path / "items.csv").write_text("item,category\ntea,drinks\nrice,food\n")
    path = tmp_path / "sales.toml"
    path.write_text(FILE)
    return path


def fill(shop: Shop, numbers: range) -> None:
    pipeline = shop.client.pipeline(transaction=False)
    for number in numbers:
        body: Any = {"n": number, "item": ("tea", "rice", "soap")[number % 3]}
        pipeline.xadd("s", body, id=f"{number}-1")
    pipeline.execute()


def table(file: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows as any reader sees them that lists the directory."""
    rows: list[dict[str, Any]] = (
        ds.dataset(str(file.parent / "tables" / name), partitioning="hive").to_table().to_pylist()
    )
    return rows


def made_by(results: list[Made]) -> dict[str, int]:
    return {made.table: made.rows for made in results}


def test_tables_follow_the_stream_and_each_run_continues(
    spark: SparkSession, shop: Shop, file: Path
) -> None:
    fill(shop, range(1, 601))
    lines: list[str] = []

    first = run(load(file), report=lines.append)
    fill(shop, range(601, 1201))
    shop.client.xtrim("s", minid="601", approximate=False)
    second = run(load(file), report=lines.append)
    third = run(load(file), report=lines.append)

    assert made_by(first) == {"sales": 600, "big": 0, "totals": 3, "best": 1}
    assert made_by(second) == {"sales": 600, "big": 300, "totals": 3, "best": 1}
    assert made_by(third) == {"sales": 0, "big": 0, "totals": 3, "best": 1}
    sales = table(file, "sales")
    assert sorted(row["n"] for row in sales) == list(range(1, 1201))
    assert {row["category"] for row in sales} >= {"drinks", "food"}
    assert sorted(row["n"] for row in table(file, "big")) == list(range(901, 1201))
    assert {row["category"]: row["n"] for row in table(file, "totals")} == {
        "food": 400,
        "drinks": 400,
        None: 400,
    }
    assert table(file, "best") == [{"category": "drinks"}]
    assert any(line.startswith("sales: batch 0, 400 rows in ") for line in lines)
    assert any(line.startswith("totals: 3 rows in ") for line in lines)
    versions = sorted(p.name for p in (file.parent / "tables" / ".totals.versions").iterdir())
    assert versions == ["00000002", "00000003"]


def test_a_pipeline_with_an_interval_updates_its_tables_until_it_is_stopped(
    spark: SparkSession, shop: Shop, file: Path
) -> None:
    file.write_text(FILE + '\n[trigger]\ninterval = "100ms"\n')
    fill(shop, range(1, 11))
    stop, lines = threading.Event(), list[str]()
    counted: list[int] = []

    def follow(line: str) -> None:
        lines.append(line)
        if line.startswith("best:") and (file.parent / "tables" / "totals").exists():
            counted.append(sum(row["n"] for row in table(file, "totals")))
            if counted[-1] == 10:
                fill(shop, range(11, 31))
            if counted[-1] == 30:
                stop.set()

    made = run(load(file), report=follow, stop=stop)

    assert counted[-1] == 30
    assert made_by(made)["sales"] == 30


def test_data_loss_ends_the_run_and_names_table_and_stream(
    spark: SparkSession, shop: Shop, file: Path
) -> None:
    fill(shop, range(1, 11))
    run(load(file), report=lambda _line: None)
    fill(shop, range(11, 21))
    shop.client.xtrim("s", maxlen=3, approximate=False)

    with pytest.raises(DataLoss, match=r"table \w+: stream 's': 7 of 10 entries after 10-1"):
        run(load(file), report=lambda _line: None)

    accepting = load(file, overrides=["source.raw.failOnDataLoss=false"])
    assert made_by(run(accepting, report=lambda _line: None))["sales"] == 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("i.category FROM", "i.categry FROM", "table.sales.sql: [UNRESOLVED_COLUMN"),
        ('["category"]', '["town"]', "table.sales.partition_by: the table has no column 'town'"),
        (
            "SELECT category FROM totals",
            "SELEC category FROM totals",
            "table.best.sql: [PARSE_SYNTAX",
        ),
    ],
)
def test_an_error_that_only_spark_detects_is_reported_with_the_key(
    spark: SparkSession, shop: Shop, file: Path, old: str, new: str, said: str
) -> None:
    fill(shop, range(1, 3))
    assert old in FILE
    file.write_text(FILE.replace(old, new))

    with pytest.raises(PipelineError) as raised:
        run(load(file), report=lambda _line: None)

    assert str(raised.value).startswith(f"{file}: {said}")
    assert not (file.parent / "tables").exists(), "nothing is written before all is analysed"


# --- crashes --------------------------------------------------------------------------------------


KILLED = """
import os, signal, sys
from headwater.spark.pipeline import load, run
from headwater.spark.pipeline.sinks import parquet

append = parquet.AppendTable._append
def append_and_die(self, batch):
    append(self, batch)
    if batch.id.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
parquet.AppendTable._append = append_and_die
run(load(sys.argv[1]))
"""


@pytest.fixture
def one_table(file: Path) -> Path:
    file.write_text(FILE.partition("[table.big]")[0])
    return file


@pytest.mark.slice
def test_a_driver_killed_between_table_and_commit_leaves_each_entry_once(
    spark: SparkSession, shop: Shop, one_table: Path
) -> None:
    # Given a driver that dies after its second batch is in the table and before Spark has logged it
    fill(shop, range(1, 1001))
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(one_table)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=one_table.parent,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert "batch 0, 400 rows" in child.stdout

    # When the next run continues
    fill(shop, range(1001, 1101))
    lines: list[str] = []
    made = run(load(one_table), report=lines.append)

    # Then it does not write that batch again and misses nothing
    assert lines[0].startswith("sales: batch 1 was already there, from the previous run")
    assert made_by(made) == {"sales": 300}
    assert sorted(row["n"] for row in table(one_table, "sales")) == list(range(1, 1101))


def test_a_run_that_ended_while_files_were_moved_is_undone_and_replayed(
    spark: SparkSession, shop: Shop, one_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(shop, range(1, 301))
    move, moved = parquet._move, list[Path]()

    def die_after_the_second(source: Path, target: Path) -> None:
        if len(moved) == 2:
            raise RuntimeError("power loss")
        move(source, target)
        moved.append(target)

    with monkeypatch.context() as patched:
        patched.setattr(parquet, "_move", die_after_the_second)
        with pytest.raises(PipelineError, match=r"table sales: .*power loss"):
            run(load(one_table), report=lambda _line: None)
    assert 0 < len(table(one_table, "sales")) < 300

    made = run(load(one_table), report=lambda _line: None)

    assert made_by(made) == {"sales": 300}
    assert sorted(row["n"] for row in table(one_table, "sales")) == list(range(1, 301))


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def command() -> Callable[..., Any]:
    from headwater.cli.pipeline import app

    def invoke(*words: str) -> Any:
        return CliRunner().invoke(app, list(words))

    return invoke


def test_the_command_runs_a_file_and_reports_its_tables(
    spark: SparkSession, shop: Shop, file: Path, command: Callable[..., Any]
) -> None:
    file.write_text(FILE + '\n[trigger]\ninterval = "1h"\n')
    fill(shop, range(1, 6))

    result = command("run", str(file), "--once", "--set", "source.raw.stream=s*")

    assert result.exit_code == 0, result.output
    assert "sales: batch 0, 5 rows in " in result.output
    assert "totals: 3 rows" in result.output


def test_a_wrong_file_is_refused_before_spark_starts(
    file: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.pipeline.spark_session.session", None)
    file.write_text(FILE.replace("[input.items]", "[inputs.items]"))

    result = command("run", str(file))

    assert isinstance(result.exception, PipelineError)
    assert "inputs: unknown key. Did you mean 'input'?" in str(result.exception)
