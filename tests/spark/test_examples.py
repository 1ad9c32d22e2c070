"""The pipelines of examples/, run with real flights."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples import publish
from examples.archive import report as archive_report
from examples.dead_letters import report as dead_report
from examples.medallion import report as medallion_report
from headwater.demo.data import flights
from headwater.spark.pipeline import load, run
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
]

STORES = ("headwater",)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FLIGHTS = 3_000
CORRUPTED = 30


@pytest.fixture
def example(
    request: pytest.FixtureRequest, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of the example that a test names, so that its tables are written elsewhere."""
    monkeypatch.setenv("FLIGHTS_URL", shop.url)
    monkeypatch.setenv("FLIGHTS_INPUTS", str(tmp_path / "inputs"))
    copy: Path = tmp_path / request.param
    shutil.copytree(EXAMPLES / request.param, copy)
    return copy


def fill(shop: Shop, count: int, *, skip: int = 0, corrupt: int = 0) -> None:
    """Publish ``count`` flights after the first ``skip``, ``corrupt`` of them with a fault."""
    chosen = flights(limit=skip + count)[skip:]
    publish.publish(shop.client, "flights", chosen, corrupt=corrupt)


def run_pipeline(example: Path) -> None:
    run(load(example / "pipeline.toml"), report=lambda _line: None)


@pytest.mark.slice
@pytest.mark.parametrize("example", ["medallion"], indirect=True)
def test_rows_that_break_a_rule_are_quarantined_and_all_others_are_in_silver(
    spark: SparkSession, shop: Shop, example: Path, tmp_path: Path
) -> None:
    # Given flights in two parts, some of which are corrupt, and a run between them
    publish.write_inputs(tmp_path / "inputs")
    fill(shop, FLIGHTS, corrupt=CORRUPTED)
    run_pipeline(example)
    fill(shop, 500, skip=FLIGHTS)

    # When the pipeline has read all
    run_pipeline(example)
    found = medallion_report.write(example / "tables", example / "report.html")

    # Then each flight is in bronze, and either in silver or in the quarantine
    assert found.agree
    assert len(found.bronze) == FLIGHTS + 500
    assert len(found.quarantined) == CORRUPTED
    assert found.broken == {
        "airline_is_known": CORRUPTED // 3,
        "departs_on_a_clock": CORRUPTED // 3,
        "fits_its_types": CORRUPTED // 3,
    }
    page = (example / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/svg+xml") == 3


@contextmanager
def workers(shop: Shop, *, knows_all: bool) -> Iterator[None]:
    """Run the example's workers during the block, and then until they have settled everything.

    Without ``knows_all``, they have a bug: they do not know all airports.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", "work", "examples.dead_letters.app:app"],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "KNOWS_ALL": str(int(knows_all))},
        cwd=EXAMPLES.parent,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
        settled(shop, process)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def settled(shop: Shop, process: subprocess.Popen[bytes]) -> None:
    """Wait until the group has read and settled everything; ``process`` must not end meanwhile."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None
        groups: Any = shop.client.xinfo_groups("flights")
        last: Any = shop.client.xinfo_stream("flights")
        if groups and not groups[0]["pending"]:
            delivered = groups[0]["last-delivered-id"]
            if delivered == last["last-generated-id"]:
                return
        time.sleep(0.1)
    pytest.fail("the workers did not finish")


@pytest.mark.slice
@pytest.mark.parametrize("example", ["dead_letters"], indirect=True)
def test_dead_letters_are_grouped_by_cause_and_replayed_after_the_repair(
    spark: SparkSession, shop: Shop, example: Path
) -> None:
    # Given flights, some of which are corrupt
    fill(shop, FLIGHTS, corrupt=CORRUPTED)
    unlisted = sum(flight.dest in {"BQN", "PSE", "SJU", "STT"} for flight in flights(limit=FLIGHTS))

    # When workers with a bug have handled them
    with workers(shop, knows_all=False):
        pass
    run_pipeline(example)
    found = dead_report.write(example / "tables", example / "report.html")

    # Then each cause has its dead letters: a destination, an airline, a type
    causes = {row["what"]: row["letters"] for row in found.causes}
    assert causes["airline ??"] == CORRUPTED // 3
    assert causes["a value of the wrong type"] == CORRUPTED // 3
    assert sum(n for what, n in causes.items() if what.startswith("airport ")) in range(
        unlisted - CORRUPTED, unlisted + 1
    )
    attempts = {row["what"]: row["attempts"] for row in found.causes}
    assert attempts["airport SJU"] == 3
    assert attempts["airline ??"] == 1

    # And after the repair, when all are replayed, only corrupt flights become dead letters again
    from click.testing import CliRunner

    from headwater.cli.pipeline import app

    declared = str(example / "pipeline.toml")
    replayed = CliRunner().invoke(app, ["replay", declared, "--dead", "--all"])
    assert replayed.exit_code == 0, replayed.output
    with workers(shop, knows_all=True):
        pass
    assert shop.client.xlen("{flights}.dead") == 2 * (CORRUPTED // 3)


@pytest.mark.parametrize("example", ["archive"], indirect=True)
def test_archive_and_stream_are_read_together(
    spark: SparkSession, shop: Shop, example: Path
) -> None:
    # Given flights that were archived and trimmed, and others that are only in the stream
    fill(shop, FLIGHTS)
    run_pipeline(example)
    assert shop.client.xlen("flights") == 0
    fill(shop, 700, skip=FLIGHTS)

    # Then reading both together returns each flight once
    found = archive_report.write(shop.url, example / "archive", example / "report.html")

    assert found == (FLIGHTS + 700, 700, FLIGHTS + 700, 0)
    assert found.whole
