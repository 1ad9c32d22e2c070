"""No table depends on a time zone: of the session, of the process, or of the reader.

golden_times/ has two tables that a version wrote, in a session in Europe/Berlin, whose partition values were times of
that zone.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from headwater.errors import PipelineError
from headwater.spark.pipeline import load, run
from headwater.spark.pipeline.sinks import BatchId
from headwater.spark.pipeline.sinks.delta import DeltaAppend, DeltaComplete, DeltaUpdate
from headwater.spark.pipeline.sinks.files import rows_of
from headwater.spark.pipeline.sinks.layout import is_utc, moved_to_utc, zone_of
from headwater.spark.pipeline.sinks.parquet import AppendTable, CompleteTable
from headwater.spark.pipeline.table_log.logs import log_of
from headwater.spark.pipeline.table_log.positions import NOTHING
from headwater.spark.pipeline.table_sinks import TableSinks
from tests.command_line import in_thread
from tests.spark.checkpoints import give_checkpoint
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STORES = ("headwater",)

GOLDEN = Path(__file__).parent / "golden_times"

WAYS = [
    ("Asia/Kolkata", ("at",)),
    ("Europe/Berlin", ("local", "day", "at")),
    ("America/St_Johns", ("at",)),
    ("+05:45", ("local", "day", "at")),
]
"""Zones of sessions, with the columns that partition a table."""

TIMES = [
    datetime(2026, 7, 1, 22, 30, 0, 500000, UTC),
    datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
    datetime(2026, 10, 25, 1, 30, tzinfo=UTC),  # at the same wall clock time in Berlin
    datetime(2026, 3, 29, 1, 30, 0, 1, UTC),
    datetime(1890, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    None,
]

SQL = "n int, at timestamp, local timestamp_ntz, day date"

OLD = [
    (0, datetime(2026, 7, 1, 22, 30, 0, 500000, UTC), "a b"),
    (1, datetime(2026, 10, 25, 0, 30, tzinfo=UTC), "ü"),
    (2, None, "x"),
    (3, datetime(2026, 12, 31, 23, 30, tzinfo=UTC), "x"),
]


@pytest.fixture
def session(
    spark: SparkSession, zone: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SparkSession]:
    """A session in a zone, in a process of another one."""
    jvm: Any = spark._jvm
    before = jvm.java.util.TimeZone.getDefault()
    made = spark.newSession()
    made.conf.set("spark.sql.session.timeZone", zone)
    jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone("Australia/Lord_Howe"))
    monkeypatch.setenv("TZ", "Australia/Lord_Howe")
    time.tzset()
    yield made
    jvm.java.util.TimeZone.setDefault(before)
    monkeypatch.undo()
    time.tzset()


def some(session: SparkSession) -> DataFrame:
    rows = []
    for number, at in enumerate(TIMES):
        local = None if at is None else at.replace(tzinfo=None)
        rows.append((number, at, local, None if local is None else local.date()))
    return session.createDataFrame(rows, SQL)


def micros(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows with moments as numbers: Python would show them in a zone."""
    return sorted(
        map(tuple, frame.selectExpr("n", "unix_micros(at)", "string(local)", "day").collect())
    )


def seen(table: pa.Table) -> list[tuple[Any, ...]]:
    rows = table.select(["n", "at", "local", "day"]).to_pylist()
    return sorted((row["n"], row["at"], row["local"], row["day"]) for row in rows)


def written() -> list[tuple[Any, ...]]:
    local = [None if at is None else at.replace(tzinfo=None) for at in TIMES]
    days = [None if at is None else at.date() for at in local]
    return list(zip(range(len(TIMES)), TIMES, local, days, strict=True))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize(("zone", "parts"), WAYS)
def test_partitions_by_time_are_the_same_moments_in_every_zone(
    session: SparkSession, tmp_path: Path, parts: tuple[str, ...]
) -> None:
    # Given rows whose times clocks of the zone show twice, or never
    frame = some(session)
    appended = AppendTable(tmp_path / "parquet", parts)
    delta = DeltaAppend(tmp_path / "delta", partition_by=parts)
    updated = DeltaUpdate(tmp_path / "update", ("n",), partition_by=parts)
    replaced = CompleteTable(tmp_path / "complete", parts)
    rebuilt = DeltaComplete(tmp_path / "rebuilt", partition_by=parts)

    # When each sink writes them
    for sink in (appended, delta, updated):
        sink.prepare()
        give_checkpoint(sink.checkpoint)
        sink.write(frame, BatchId(0))
    updated.write(frame, BatchId(1))
    for complete in (replaced, rebuilt):
        complete.prepare()
        complete.write(frame)

    # Then each reads them back, and so does every other reader
    for made in (appended, delta, updated, replaced, rebuilt):
        assert micros(made.finished(session, frame.schema)) == micros(frame), made
    for path in (delta.path, updated.path, rebuilt.path):
        assert seen(DeltaTable(path).to_pyarrow_table()) == written()
    schema = pa.schema(
        [
            ("n", pa.int32()),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
        ]
    )
    hive = ds.partitioning(pa.schema([schema.field(name) for name in parts]), flavor="hive")
    for path in (appended.path, replaced.path.resolve()):
        files = [str(file) for file in path.rglob("*.parquet")]
        found = ds.dataset(files, schema=schema, partitioning=hive, partition_base_dir=str(path))
        assert seen(found.to_table()) == written()
    for kind, path in (("parquet", appended.path), ("delta", delta.path)):
        log = log_of(kind, path)
        batches = [b for file in log.added(NOTHING, log.end()) for b in rows_of(file, schema)]
        assert seen(pa.Table.from_batches(batches)) == written()


@pytest.mark.spark
@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_tables_built_on_partitions_by_time_have_the_moments_of_the_stream(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    # Given a pipeline in another zone, whose tables are partitioned by a time and read each other
    for number, at in enumerate(TIMES):
        fields: Any = {"n": number} | ({} if at is None else {"at": at.isoformat()})
        shop.client.xadd("s", fields)
    file = tmp_path / "p.toml"
    file.write_text(f"""
[spark]
conf.spark.sql.session.timeZone = "America/St_Johns"

[source.raw]
url = "{shop.url}"
stream = "s"
schema = "n int, at timestamp"

[table.stored]
mode = "append"
sink = "delta"
sql = "SELECT n, at FROM raw"
path = "stored"
partition_by = ["at"]

[table.followed]
mode = "append"
sql = "SELECT n, at FROM stored"
path = "followed"
partition_by = ["at"]

[table.newest]
mode = "update"
sink = "delta"
key = ["n"]
sql = "SELECT n, at FROM stored"
path = "newest"
partition_by = ["at"]

[table.all]
mode = "complete"
sql = "SELECT s.n, s.at, f.at AS f, u.at AS u FROM stored s JOIN followed f USING (n) JOIN newest u USING (n)"
path = "all"
""")

    # When it runs twice, the second time over the tables of the first
    for _run in range(2):
        run(load(file), once=True, report=lambda _line: None)

    # Then every table has the moments of the stream
    found = spark.read.parquet(str(tmp_path / "all"))
    seen = found.selectExpr("n", *(f"unix_micros({name})" for name in ("at", "f", "u"))).collect()
    epoch, unit = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    moments = [None if at is None else (at - epoch) // unit for at in TIMES]
    assert sorted(map(tuple, seen)) == [(n, at, at, at) for n, at in enumerate(moments)]
    TableSinks(load(file)).check()


def declared(tmp_path: Path, kind: str, zone: str) -> Path:
    """Declare a pipeline with a table that an earlier version wrote."""
    if not (tmp_path / kind).exists():
        shutil.copytree(GOLDEN / kind, tmp_path / kind)
    file = tmp_path / "p.toml"
    file.write_text(f"""
[source.raw]
url = "redis://127.0.0.1:1"
stream = "s"
schema = "n int, at timestamp, kind string"

[table.sales]
mode = "append"
sql = "SELECT * FROM raw"
sink = "{kind}"
path = "{kind}"
partition_by = ["at", "kind"]

[table.copy]
mode = "append"
sql = "SELECT * FROM sales"
path = "copy"

[spark]
conf.spark.sql.session.timeZone = "{zone}"
""")
    return file


def old_rows(tmp_path: Path, kind: str) -> list[tuple[Any, ...]]:
    schema = pa.schema(
        [("n", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("kind", pa.string())]
    )
    log = log_of(kind, tmp_path / kind)
    batches = [b for file in log.added(NOTHING, log.end()) for b in rows_of(file, schema)]
    return sorted(tuple(row.values()) for row in pa.Table.from_batches(batches).to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_partitions_that_an_earlier_version_shifted_are_found_and_repaired(
    tmp_path: Path, kind: str
) -> None:
    # Given a table whose partition values are times of Berlin
    file = declared(tmp_path, kind, "Europe/Berlin")
    before = log_of(kind, tmp_path / kind).end()
    assert old_rows(tmp_path, kind) != OLD

    # When it is planned, then the error names the command
    planned = in_thread(["pipeline", "plan", "--no-spark", str(file)])
    assert planned[0] == 1
    command = ["pipeline", "repair", str(file), "--table", "sales", "--zone", "Europe/Berlin"]
    assert f"headwater {' '.join(command)}" in planned[2]
    assert len(planned[2].splitlines()) == 1

    # When it would be repaired, then nothing changes
    dry = in_thread([*command, "--dry-run"])
    assert "files would be corrected from Europe/Berlin to UTC, by at" in dry[1], dry[2]
    assert log_of(kind, tmp_path / kind).end() == before

    # When it is repaired, then it has the moments that were written, and a repeated repair changes nothing
    done = in_thread(command)
    assert "1 times occurred twice" in done[1]
    assert "copy may have read the old values" in done[1]
    assert old_rows(tmp_path, kind) == OLD
    assert "nothing to repair" in in_thread(command)[1]
    assert old_rows(tmp_path, kind) == OLD
    assert in_thread(["pipeline", "plan", "--no-spark", str(file)])[0] == 0
    end = log_of(kind, tmp_path / kind).end()
    if kind == "delta":
        assert seen_old(DeltaTable(tmp_path / kind)) == OLD
        # And tables that follow this one do not get the rows again
        assert log_of(kind, tmp_path / kind).added(before, end) == []
    else:
        assert end == before
        assert {
            str(f.relative_to(tmp_path / kind)) for f in (tmp_path / kind).rglob("*.parquet")
        } == {
            name
            for line in (tmp_path / kind / "_headwater" / "manifest.jsonl")
            .read_bytes()
            .splitlines()
            for name in json.loads(line)["files"]
        }


def seen_old(table: DeltaTable) -> list[tuple[Any, ...]]:
    rows = table.to_pyarrow_table(columns=["n", "at", "kind"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_tables_of_a_session_in_utc_need_no_repair(tmp_path: Path) -> None:
    for zone in ("UTC", "Etc/UTC", "+00:00"):
        TableSinks(load(declared(tmp_path, "parquet", zone))).check()


@pytest.mark.parametrize("place", range(4))
def test_a_killed_repair_of_a_parquet_table_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    # Given a repair that is killed at one of its steps
    sinks = TableSinks(load(declared(tmp_path, "parquet", "Europe/Berlin")))
    step = ("_move", "_renamed", "_note_times", "suppress")[place]
    calls = 0

    def die(*_arguments: object) -> None:
        nonlocal calls
        calls += 1
        if step != "_renamed" or calls > 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if step in ("_move", "suppress"):
            patched.setattr(f"headwater.spark.pipeline.sinks.parquet.{step}", die)
        else:
            patched.setattr(AppendTable, step, die)
        with pytest.raises(KeyboardInterrupt):
            sinks.repair_times("sales", "Europe/Berlin")

    # Then no run uses the table until the next repair has completed it
    with pytest.raises(PipelineError, match="repair of the table was interrupted"):
        sinks.streamed["sales"].check()
    sinks.repair_times("sales", "Europe/Berlin")
    assert old_rows(tmp_path, "parquet") == OLD
    sinks.check()


def test_a_repair_names_what_it_cannot_do(tmp_path: Path) -> None:
    sinks = TableSinks(load(declared(tmp_path, "parquet", "UTC")))

    with pytest.raises(PipelineError, match="'Europe/Belrin' is not a time zone"):
        sinks.repair_times("sales", "Europe/Belrin")
    with pytest.raises(PipelineError, match=r"'slaes' is not a table .* these are sales, copy"):
        sinks.repair_times("slaes", "UTC")


def test_zones_have_sparks_names() -> None:
    at = "2026-10-25 02:30:00"
    expected = {
        "Asia/Kolkata": ("2026-10-24 21:00:00", False),
        "Europe/Berlin": ("2026-10-25 00:30:00", True),
        "America/St_Johns": ("2026-10-25 05:00:00", False),
        "Pacific/Apia": ("2026-10-24 13:30:00", False),
        "+05:45": ("2026-10-24 20:45:00", False),
        "UTC+1": ("2026-10-25 01:30:00", False),
        "GMT-03:30": ("2026-10-25 06:00:00", False),
        "Z": (at, False),
    }
    moved = {zone: moved_to_utc(at, zone_of(zone)) for zone in expected}

    assert moved == expected
    assert [zone for zone in moved if is_utc(zone)] == ["Z"]
    with pytest.raises(PipelineError, match="is not a time of the years 1 to 9999"):
        moved_to_utc("+10000-01-01 00:00:00", zone_of("UTC"))
