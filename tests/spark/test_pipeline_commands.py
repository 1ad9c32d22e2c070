"""``headwater pipeline``: each command reports correctly, shows no secret, and writes only its part."""

from __future__ import annotations

import io
import json
import logging
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

import headwater
from headwater.errors import DeclarationError, Disconnected, HeadwaterError, PipelineError
from headwater.messages.dead import dead_letter_fields
from headwater.spark.pipeline import Progress, load
from headwater.spark.pipeline.expectations import WriteOutcome
from headwater.spark.pipeline.lag import Lag
from headwater.spark.pipeline.metrics import served
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)

PASSWORD = "hunter2"

FILE = """
[spark]
master = "local[2]"

[source.orders]
url = "${HW_TEST_URL}"
stream = "orders"
schema = "id string, timestamp timestamp, n bigint"

[input.names]
path = "names.csv"

[table.sales]
mode = "append"
sql = "SELECT o.*, name FROM orders o LEFT JOIN names USING (n)"
path = "tables/sales"

[[table.sales.expect]]
name = "named"
predicate = "name IS NOT NULL"
action = "quarantine"

[table.total]
mode = "complete"
sql = "SELECT count(*) AS n FROM sales"
path = "tables/total"

[dead_letters]
path = "tables/dead"

[table.dead_by_group]
mode = "complete"
sql = "SELECT `group`, count(*) AS n, max(deliveries) AS most FROM dead_letters GROUP BY `group`"
path = "tables/dead_by_group"
"""

LATE = """
[table.per_minute]
mode = "append"
sql = '''
    SELECT window(timestamp, '1 minute') AS minute, count(*) AS n
    FROM sales GROUP BY window(timestamp, '1 minute')
'''
watermark = { column = "timestamp", delay = "10m" }
path = "tables/per_minute"
"""

DEAD = "{orders}.dead"


@pytest.fixture
def file(tmp_path: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A pipeline whose url contains a password."""
    shop.client.execute_command("ACL", "SETUSER", "ops", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    monkeypatch.setenv("HW_TEST_URL", shop.url.replace("://", f"://ops:{PASSWORD}@"))
    (tmp_path / "names.csv").write_text(
        "n,name\n" + "".join(f"{n},name {n}\n" for n in range(1, 9))
    )
    path = tmp_path / "orders.toml"
    path.write_text(FILE)
    yield path
    shop.client.execute_command("ACL", "DELUSER", "ops")


@pytest.fixture
def command() -> Callable[..., Any]:
    from headwater.cli.pipeline import app

    def invoke(*words: str) -> Any:
        result = CliRunner().invoke(app, list(words))
        assert PASSWORD not in result.output
        assert PASSWORD not in str(result.exception)
        return result

    return invoke


def fill(shop: Shop) -> None:
    """Add ten orders, two of which have no name, and two dead letters."""
    shop.add("orders", range(1, 11))
    for number, deliveries in ((3, 4), (5, 6)):
        record = dead_letter_fields(
            [b"n", b"%d" % number],
            stream="orders",
            group="billing",
            entry_id=f"{number}-1",
            consumer="one",
            deliveries=deliveries,
            error="ValueError: no",
            trace="",
            at_ms=1526569498055,
        )
        shop.client.xadd(DEAD, dict(record))


def rows(file: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        ds.dataset(str(file.parent / "tables" / name)).to_table().to_pylist()
    )
    return found


def test_a_plan_reports_everything_and_writes_nothing(
    spark: SparkSession, shop: Shop, file: Path, command: Callable[..., Any]
) -> None:
    fill(shop)
    file.write_text(FILE + LATE)
    planned = command("plan", str(file)).output
    place = shop.url.rpartition("/")[2]
    assert f"source orders: orders at redis://***@{place} (log, from earliest)" in planned
    assert "orders orders: 10 entries to read, the oldest " in planned
    assert "columns n bigint, id string, timestamp timestamp, name string" in planned
    assert "table per_minute: append" in planned
    assert "watermark timestamp, 10 minutes" in planned
    assert "expects named: name IS NOT NULL (else quarantine)" in planned
    assert "(not begun)" in planned
    assert planned.index("table sales:") < planned.index("table total:")
    assert not (file.parent / "tables").exists()

    # And without Spark it is the same, except for what only Spark knows
    quick = command("plan", str(file), "--no-spark").output.splitlines()
    assert quick[0] == f"{file}: available-now, SQL not analysed"
    columns = [line for line in planned.splitlines() if line.startswith("  columns ")]
    assert columns
    ages = re.compile("the oldest .*")
    assert [ages.sub("", line) for line in quick[1:]] == [
        ages.sub("", line) for line in planned.splitlines()[1:] if line not in columns
    ]

    # And SQL that Spark does not support on streams is reported before anything is written
    file.write_text(FILE + LATE.replace("watermark =", "# watermark ="))
    refused = str(command("run", str(file)).exception)
    assert f"{file}: table.per_minute: [" in refused
    assert "without watermark" in refused
    assert not (file.parent / "tables").exists()


def test_status_shows_a_pipeline_before_and_after_a_run(
    spark: SparkSession, shop: Shop, file: Path, command: Callable[..., Any]
) -> None:
    # Given a pipeline that has not run yet
    fill(shop)
    before = command("status", str(file)).output
    assert "sales: append, parquet " in before
    assert "not begun" in before
    assert "orders orders: 10 entries to read" in before

    # When it runs
    result = command("run", str(file), "--metrics", "0")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "metrics at http://127.0.0.1:" in result.output
    assert "sales: batch 0, 8 rows in " in result.output
    assert "2 quarantined; not met: named 2" in result.output
    assert rows(file, "dead_by_group") == [{"group": "billing", "n": 2, "most": 6}]
    dead = {row["entry_id"]: row for row in rows(file, "dead")}
    assert dict(dead["3-1"]["fields"]) == {"n": "3"}
    assert (dead["3-1"]["stream"], dead["3-1"]["deliveries"]) == ("orders", 4)
    assert dead["3-1"]["at"].isoformat().startswith("2018-05-17T15:04:58.055")

    # Then its status is updated, as text and as JSON
    shop.add("orders", range(11, 14))
    after = json.loads(command("status", str(file), "--json").output)
    tables = {table["name"]: table for table in after["tables"]}
    assert (tables["sales"]["rows"], tables["sales"]["quarantined"]) == (8, 2)
    assert tables["sales"]["batch"] == 0
    assert tables["sales"]["lags"][0]["entries"] == 3
    assert tables["sales"]["lags"][0]["seconds"] > 0
    assert tables["total"]["rows"] == 1
    assert after["dead_letters"] == {DEAD: 2}
    assert "batch 0" in command("status", str(file)).output

    # And the history of its expectations is shown
    history = command("quality", str(file), "--last", "1").output
    assert "batch 0: 10 rows, 8 kept, 0 dropped, 2 quarantined; not met: named 2" in history
    (batch,) = json.loads(command("quality", str(file), "--table", "sales", "--json").output)[
        "sales"
    ]
    assert (batch["batch"], batch["kept"], batch["violations"]) == (0, 8, {"named": 2})
    refused = command("quality", str(file), "--table", "total")
    assert refused.exit_code == 1
    assert "'total' is not a streamed table with expectations" in str(refused.exception)

    # And a plan says what is left to read
    assert "orders orders: 3 entries to read, the oldest " in command("plan", str(file)).output


def test_dead_letters_are_replayed_to_their_streams_once(
    shop: Shop, file: Path, command: Callable[..., Any]
) -> None:
    fill(shop)

    first = shop.client.xrange(DEAD)[0][0].decode()  # type: ignore[index,union-attr]
    assert command("replay", str(file), "--dead", "--id", first).output == f"{DEAD}: 1 replayed\n"
    assert command("replay", str(file), "--dead", "--all").output == f"{DEAD}: 1 replayed\n"
    assert command("replay", str(file), "--dead", "--all").output == f"{DEAD}: 0 replayed\n"
    assert shop.client.xlen("orders") == 12
    assert shop.client.xlen(DEAD) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "choose what to replay: --dead"),
        (("--dead",), "choose dead letters with --id, or all of them with --all"),
        (("--dead", "--all", "--id", "1-1"), "choose dead letters with --id, or all"),
    ],
)
def test_a_replay_says_which_option_is_missing(
    file: Path, command: Callable[..., Any], words: tuple[str, ...], said: str
) -> None:
    result = command("replay", str(file), *words)

    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--id", "1-1"), "no dead-letter stream has 1-1"),
        (("--all", "--source", "ordres"), "there is no source 'ordres'"),
    ],
)
def test_a_replay_says_what_is_not_there(
    file: Path, command: Callable[..., Any], words: tuple[str, ...], said: str
) -> None:
    result = command("replay", str(file), "--dead", *words)

    assert isinstance(result.exception, HeadwaterError)
    assert said in str(result.exception)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.spark.pipeline.spark_session.session", None)


@pytest.mark.usefixtures("without_spark")
def test_a_wrong_stream_is_reported_before_spark_starts(
    shop: Shop, file: Path, command: Callable[..., Any], tmp_path: Path
) -> None:
    shop.add("order", [1])
    shop.client.set("text", "1")

    missing = command("run", str(file)).exception
    wrong = command("run", str(file), "--set", "source.orders.stream=text").exception
    away = command(
        "run", str(file), "--set", f"source.orders.url=redis://ops:{PASSWORD}@127.0.0.1:1"
    ).exception

    assert isinstance(missing, PipelineError)
    assert f"{file}: source.orders: stream: there is no stream 'orders' at redis://***@" in str(
        missing
    )
    assert "Did you mean 'order'?" in str(missing)
    assert isinstance(wrong, DeclarationError)
    assert "source.orders: stream: the key 'text' holds a string, not a stream" in str(wrong)
    assert isinstance(away, Disconnected)
    assert f"{file}: source.orders: cannot reach the store at redis://***@127.0.0.1:1" in str(away)
    assert not (tmp_path / "tables").exists()


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize("words", [("plan",), ("run",)])
def test_an_embedded_store_on_a_cluster_is_refused_before_spark_starts(
    shop: Shop, file: Path, command: Callable[..., Any], tmp_path: Path, words: tuple[str, ...]
) -> None:
    with headwater.connect(f"headwater://{tmp_path}/store") as store:
        store.xadd("orders", {"n": 1})
    url = f"source.orders.url=headwater://{tmp_path}/store"

    refused = command(*words, str(file), "--master", "spark://host:7077", "--set", url).exception

    assert isinstance(refused, HeadwaterError)
    assert f"{file}: source.orders: headwater://{tmp_path}/store is a store within" in str(refused)
    assert f"headwater serve --dir {tmp_path}/store" in str(refused)
    assert not (tmp_path / "tables").exists()


def test_wrong_sql_is_one_sentence_without_a_jvm_stack(
    shop: Shop, file: Path, command: Callable[..., Any]
) -> None:
    from pyspark.logger import PySparkLogger

    # Given the logger that PySpark uses for such errors
    fill(shop)
    said = io.StringIO()
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    handler = logging.StreamHandler(said)
    logger.addHandler(handler)
    try:
        # When a column is misspelt
        file.write_text(file.read_text().replace("count(*)", "count(nmae)"))
        wrong = command("plan", str(file)).exception
    finally:
        logger.removeHandler(handler)

    # Then it is reported once, in one line
    assert f"{file}: table.total.sql: [UNRESOLVED_COLUMN" in str(wrong)
    assert "\n" not in str(wrong)
    assert said.getvalue() == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'sql = "SELECT count(*) AS n FROM sales"',
            'sql = "SELECT count(*) AS `a``b` FROM sales"',
            "table.total.sql: the column 'a`b' has a backtick in its name",
        ),
        (
            'mode = "append"',
            'mode = "update"\nsink = "delta"\nkey = ["hour"]',
            "table.sales.key: rows cannot be compared by 'hour', which is a struct<start:timestamp,end:timestamp>",
        ),
        (
            'stream = "orders"',
            'stream = ["orders", "late*"]',
            "source.orders: stream: there is no stream 'late[*]'",
        ),
        ('path = "tables/sales"', 'path = "names.csv"', "table.sales: .*names.csv is a file"),
        ("[spark]", '[trigger]\ninterval = "0s"\n[spark]', "trigger.interval: '0s' is not between"),
    ],
)
def test_a_plan_refuses_what_a_run_could_not_write_in_one_sentence(
    spark: SparkSession,
    shop: Shop,
    file: Path,
    command: Callable[..., Any],
    old: str,
    new: str,
    said: str,
) -> None:
    # Given a mistake in one key
    fill(shop)
    text = FILE.replace(old, new, 1)
    assert text != FILE
    if "key" in new:
        text = text.replace(
            "SELECT o.*, name", "SELECT window(timestamp, '1 hour') AS hour, o.*, name"
        )
        text = text.partition("[table.total]")[0]
    file.write_text(text)

    # When the file is planned, then the error has its key, and is one line
    wrong = str(command("plan", str(file)).exception)
    assert re.match(rf"{re.escape(str(file))}: {said}", wrong), wrong
    assert "\n" not in wrong


def test_only_one_process_at_a_time_writes_a_table(file: Path) -> None:
    from contextlib import ExitStack

    from headwater.spark.pipeline.table_sinks import TableSinks

    with ExitStack() as locks, ExitStack() as more:
        TableSinks(load(file)).lock("sales", locks)
        with pytest.raises(
            PipelineError, match=r"table\.sales: the table is being written by process \d"
        ):
            TableSinks(load(file)).lock("sales", more)
    with ExitStack() as locks:
        TableSinks(load(file)).lock("sales", locks)


def test_metrics_show_the_progress() -> None:
    progress = Progress()
    progress.begin("sales", "append")
    progress.begin("total", "complete")
    progress.add("sales", WriteOutcome(8, {"named": 2}, dropped=1, quarantined=2), 0.5, batch=3)
    progress.add("total", WriteOutcome(1), 0.1)
    progress.note_lags("sales", [Lag("orders", "s", 10, 4, 2.5)])

    with served(progress, port=0) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        with pytest.raises(HeadwaterError, match="cannot listen at"), served(progress, port=port):
            pass

    for line in (
        'headwater_pipeline_rows_total{table="sales"} 8.0',
        'headwater_pipeline_rows_quarantined_total{table="sales"} 2.0',
        'headwater_pipeline_batch_seconds{table="sales"} 0.5',
        'headwater_pipeline_table_rows{table="total"} 1.0',
        'headwater_pipeline_violations{expectation="named",table="sales"} 2.0',
        'headwater_pipeline_lag_entries{source="orders",stream="s",table="sales"} 4.0',
        'headwater_pipeline_lag_seconds{source="orders",stream="s",table="sales"} 2.5',
    ):
        assert line in text


def test_a_terminal_shows_every_table() -> None:
    from rich.console import Console

    from headwater.cli.pipeline_text import live, progress_table

    progress = Progress()
    progress.begin("sales", "append")
    progress.add("sales", WriteOutcome(8, dropped=1, quarantined=2), 0.5, batch=3)
    progress.note_lags("sales", [Lag("orders", "s", 10, 4, 2.5)])
    console = Console(width=120, record=True, file=io.StringIO())

    console.print(progress_table(progress))

    assert "sales" in (drawn := console.export_text())
    assert "1 dropped, 2 quarantined" in drawn
    assert "4 entries behind (2.5 s)" in drawn
    with live(progress) as report:
        report("sales: batch 3, 8 rows in 0.5 s")
