"""The example with Spark's Declarative Pipelines: each run reads what is new, the sink writes it once, and a full
refresh is complete with the archive. Source and sink also work over Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples import publish
from examples.declarative.prepare import prepare
from examples.declarative.report import look, write
from headwater.demo.data import flights
from headwater.spark.home import spark_home
from headwater.spark.java import java_home
from tests.spark.stores import Shop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.peer,
    pytest.mark.slice,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("spark-declarative"),
]

STORES = ("headwater",)
FLIGHTS = 2_000
CORRUPTED = 30


def command(*words: str, directory: Path, **more: str) -> str:
    """Run one of Spark's programs, and return what it prints."""
    done = _run(words, directory, more)
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def _run(
    words: tuple[str, ...], directory: Path, more: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    programs = Path(sys.executable).parent
    environment = os.environ | {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # The Connect server gets a free port instead of 15002, which a JVM that is about to end may still have.
        "SPARK_TESTING": "free port",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    return subprocess.run(
        words,
        cwd=directory,
        env=environment | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


def run(shop: Shop, directory: Path, *words: str, archive: str = "") -> str:
    """Run the pipeline in ``directory``."""
    return command(
        *("spark-pipelines", "--remote", "local[2]"),
        *("--conf", "spark.sql.catalogImplementation=hive", "run", *words),
        directory=directory,
        FLIGHTS_URL=shop.url,
        FLIGHTS_ARCHIVE=archive,
    )


def test_a_declarative_pipeline_follows_streams_and_writes_one(shop: Shop, tmp_path: Path) -> None:
    # Given the example, and flights of which some are corrupt
    directory = tmp_path / "flights"
    prepare(directory)
    chosen = flights(limit=FLIGHTS + 500)
    publish.publish(shop.client, "flights", chosen[:FLIGHTS], corrupt=CORRUPTED)

    # When it runs, and again after more flights
    run(shop, directory)
    first = look(directory)
    publish.publish(shop.client, "flights", chosen[FLIGHTS:])
    run(shop, directory)

    # Then each flight is in bronze once, and in silver or rejected
    found = write(directory, directory / "report.html")
    assert (len(first.bronze), len(found.bronze)) == (FLIGHTS, FLIGHTS + 500)
    assert found.agree
    assert found.broken == {"fits_its_types": CORRUPTED // 3, "departs_on_a_clock": CORRUPTED // 3}
    assert "data:image/svg+xml" in (directory / "report.html").read_text()
    # And the sink has the late ones once
    rejected = set(found.rejected)
    entries: Any = shop.client.xrange("late")
    late: Any = shop.client.xrange("flights")
    expected = sum(
        1
        for entry, fields in late
        if entry.decode() not in rejected and int(fields.get(b"dep_delay") or 0) > 120
    )
    assert len(entries) == expected > 10

    # When the stream is archived and trimmed, then a full refresh has all entries nevertheless
    (directory / "archive.toml").write_text(ARCHIVE)
    command(
        *(sys.executable, "-m", "headwater", "pipeline", "run", "archive.toml"),
        directory=directory,
        FLIGHTS_URL=shop.url,
    )
    assert shop.client.xlen("flights") == 0
    run(shop, directory, "--full-refresh-all", archive=str(directory / "archive"))
    again = look(directory)
    assert sorted(again.bronze) == sorted(found.bronze)
    assert again.agree


ARCHIVE = """
[spark]
master = "local[2]"

[source.flights]
url = "${FLIGHTS_URL}"
stream = "flights"

[archive]
path = "archive"
sources = ["flights"]

[table.ids]
mode = "append"
path = "ids"
sql = "SELECT id FROM flights"
"""

CONNECTED = """
import os, sys
from pyspark.sql import SparkSession
import headwater.spark
from headwater.spark import read, write, write_stream, read_stream

spark = SparkSession.builder.remote("local[2]").getOrCreate()
url = os.environ["FLIGHTS_URL"]
assert "connect" in type(spark).__module__
orders = read(spark, "s", url=url, schema="n bigint")
assert orders.count() == 30, orders.count()
write(orders.where("n > 20"), "t", url=url)
query = write_stream(
    read_stream(spark, "s", url=url, schema="n bigint"),
    "u", url=url, checkpoint=sys.argv[1], available_now=True,
)
query.awaitTermination()
spark.stop()
"""


def test_source_and_sink_work_over_spark_connect(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 31))
    script = tmp_path / "connected.py"
    script.write_text(CONNECTED)

    command(
        *(sys.executable, str(script), str(tmp_path / "c")),
        directory=tmp_path,
        FLIGHTS_URL=shop.url,
    )

    assert shop.numbers("t") == list(range(21, 31))
    assert shop.numbers("u") == list(range(1, 31))
