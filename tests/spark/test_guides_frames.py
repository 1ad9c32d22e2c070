"""The examples in the guides to notebooks, clusters and migration work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater.spark
from headwater.spark import frames
from headwater.spark.core import options
from headwater.spark.pipeline.declaration.loading import load
from headwater.spark.sink import options as sink_options
from tests.spark.stores import Shop
from tests.spark.test_guides import GUIDES, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORES = ("headwater",)

KNOWN = {*options.OPTIONS, *sink_options.OPTIONS}


def rows(guide: str, heading: str) -> list[list[str]]:
    """Return the cells of the table that begins with ``heading``."""
    text = (GUIDES / guide).read_text()
    table = text[text.index(f"| {heading} |") :].partition("\n\n")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


@pytest.mark.parametrize("heading", ["spark-redis", "Kafka's source", "Kafka's sink"])
def test_every_option_named_in_the_migration_guide_exists(heading: str) -> None:
    found = rows("migrating.md", heading)
    ours = {name for row in found for name in re.findall(r"`(\w+)`", row[1])}
    words = {"writeStream"}  # Spark's own
    assert ours - words <= KNOWN, ours - words - KNOWN
    said = {name for row in found for name in re.findall(r"`([a-z]+[A-Z]\w+)`", row[2])}
    assert said - {"atLeastOnce"} <= KNOWN


def test_every_option_of_kafkas_source_has_an_equivalent() -> None:
    text = " ".join(row[0] for row in rows("migrating.md", "Kafka's source"))
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsets",
        "endingTimestamp",
        "failOnDataLoss",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "includeHeaders",
        "groupIdPrefix",
        "kafka.group.id",
        "kafka.bootstrap.servers",
    ):
        assert f"`{name}`" in text


def test_the_notebook_guide_spells_options_in_python() -> None:
    spelt = {frames.snake(name) for name in KNOWN}
    for row in rows("notebooks.md", "option"):
        assert set(re.findall(r"`([a-z_]+)`", row[0])) <= spelt


def test_the_notebook_guide_lists_all_functions() -> None:
    text = (GUIDES / "notebooks.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)\(", text, re.MULTILINE))
    assert listed == set(headwater.spark.__all__) - {"pack_environment", "pack_module"}


def test_the_cluster_guides_toml_is_part_of_a_valid_pipeline(tmp_path: Path) -> None:
    (text,) = blocks("spark-cluster.md", "toml")
    (tmp_path / "orders.toml").write_text(
        f"""{text}
[source.orders]
url = "redis://localhost:6379"
stream = "orders"
schema = "n bigint"

[table.numbers]
mode = "append"
sql = "SELECT n FROM orders"
path = "numbers"
"""
    )
    declared = load(tmp_path / "orders.toml")
    assert declared.conf == {"spark.archives": "headwater-env.tar.gz#environment"}
    assert declared.master == "spark://host:7077"


def run(program: str, *replacements: tuple[str, str]) -> dict[str, Any]:
    """Run a program of a guide in this run's session; return its namespace."""
    for old, new in replacements:
        assert old in program, old
        program = program.replace(old, new)
    namespace: dict[str, Any] = {}
    exec(compile(program, "guide", "exec"), namespace)
    return namespace


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_notebooks_program_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "\n".join(blocks("notebooks.md", "python"))
    left = run(program, ('"checkpoints/copy"', repr(str(tmp_path))))
    left["shop"].close()
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == ["2", "5"]
    assert "Decimal('62.50')" in said[0]


@pytest.mark.spark
@pytest.mark.peer
@pytest.mark.xdist_group("spark")
def test_the_programs_of_the_migration_guide_run(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.client.xadd("sensors", {"sensor-id": "1", "temperature": "28.1"})
    shop.client.xgroup_create("sensors", "spark-source", id="0")
    shop.client.xadd("orders", {"item": "one"})
    shop.client.xadd("invoices", {"item": "skipped"})
    from_redis, source, sink = blocks("migrating.md", "python")
    place = ("redis://localhost:6379", shop.url)

    sensors = run(from_redis, place)["sensors"]
    assert sensors.schema.simpleString() == "struct<sensor-id:string,temperature:float>"
    run(source + sink, place, ('"checkpoints/big"', repr(str(tmp_path))))

    entries: Any = shop.client.xrange("orders.big")
    ((_id, fields),) = entries
    assert fields[b"value"] == b"one"


def test_the_cluster_guides_programs_compile() -> None:
    for program in blocks("spark-cluster.md", "python"):
        compile(program, "guide", "exec")
