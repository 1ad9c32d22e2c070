"""Reads of archive and stream together: each entry once, even during archiving and trimming."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.pipeline_text import status_text
from headwater.common.model import StreamID
from headwater.errors import DataLoss
from headwater.spark.archive.archiver import Archived
from headwater.spark.core.planning.lua_planning import LuaPlanner
from headwater.spark.core.planning.split_planning import SplitPlanner
from headwater.spark.pipeline.archiving import run_archive
from headwater.spark.pipeline.declaration.loading import load
from headwater.spark.pipeline.status import status
from tests.spark.archives import Table, archive, archiver
from tests.spark.queries import Query, ranges_of
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer


def test_a_batch_reads_archive_and_stream_once(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 1001))
    (done,) = archive(shop, tmp_path, step_entries=300)
    shop.add("s", range(1001, 1101))

    assert (done.entries, done.trimmed) == (1000, 1000)
    assert shop.client.xlen("s") == 100
    assert Table(shop, tmp_path).numbers() == list(range(1, 1101))
    assert Table(shop, tmp_path, minPartitions="7").numbers() == list(range(1, 1101))


def test_entries_that_are_archived_but_not_trimmed_are_read_once(
    shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 101))
    archive(shop, tmp_path, trimming=None)
    shop.add("s", range(101, 111))

    assert shop.client.xlen("s") == 110
    assert Table(shop, tmp_path).numbers() == list(range(1, 111))


def test_positions_are_the_same_in_archive_and_stream(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 101))
    archive(shop, tmp_path)
    shop.add("s", range(101, 201))

    def numbers(**options: str) -> list[int]:
        return Table(shop, tmp_path, **options).numbers()

    assert numbers(startingId="50", endingId="60-1") == list(range(50, 61))
    assert numbers(startingId="95", endingId="105-1") == list(range(95, 106))
    assert numbers(startingId="150", endingId="160-1") == list(range(150, 161))
    assert numbers(startingId="101", endingId="100-1") == []


def test_a_query_begins_in_the_archive_and_continues_in_the_stream(
    shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 1001))
    archive(shop, tmp_path)
    shop.add("s", range(1001, 1501))

    batches = Query(shop, archive=str(tmp_path), maxEntriesPerTrigger="64").batches()

    assert [len(batch) for batch in batches] == [64] * 23 + [28]
    assert [number for batch in batches for number in batch] == list(range(1, 1501))


def test_a_query_older_than_the_stream_continues_from_the_archive(
    shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 1001))
    old = Query(shop, maxEntriesPerTrigger="100")
    old.plan()
    shop.client.delete("{s}:hw:queries")  # its line is forgotten
    archive(shop, tmp_path)
    shop.add("s", [1001, 1002])

    with pytest.raises(DataLoss):
        Query(shop, log=old.log).plan()
    again = Query(shop, log=old.log, archive=str(tmp_path))

    assert again.read(old.log[0]) == list(range(1, 101))  # replays a batch that was trimmed since
    assert again.batches() == [list(range(101, 1003))]
    assert again.batches() == []


def test_a_replay_equals_the_first_run_after_its_batch_was_archived(
    shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 501))
    query = Query(shop, archive=str(tmp_path), maxEntriesPerTrigger="200")
    query.plan()
    first = query.read()
    shop.client.delete("{s}:hw:queries")
    archive(shop, tmp_path)

    again = Query(shop, log=query.log, archive=str(tmp_path), minPartitions="3")

    assert again.read() == first == list(range(1, 201))
    assert again.batches() == [list(range(201, 501))]


def test_entries_archived_and_trimmed_between_planning_and_reading_are_read(
    shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 101))
    archive(shop, tmp_path)
    shop.add("s", range(101, 20_001))
    table = Table(shop, tmp_path)
    archive(shop, tmp_path)
    shop.add("s", [20_001])

    assert shop.client.xlen("s") == 1
    assert table.numbers() == list(range(1, 20_001))


def test_entries_archived_and_trimmed_while_a_partition_is_read_are_read(
    shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 4001))
    table = Table(shop, tmp_path, minPartitions="1")
    (part,) = table.parts
    rows = table.reader.read(part)
    numbers = next(rows).column("n").to_pylist()
    archive(shop, tmp_path)

    for batch in rows:
        numbers += batch.column("n").to_pylist()

    assert numbers == list(range(1, 4001))


def test_a_partly_trimmed_page_is_not_considered_complete(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 20_001))
    shop.client.xgroup_create("s", "g", "9000-1")  # trimming ends there
    table = Table(shop, tmp_path, minPartitions="1")
    rows = table.reader.read(table.parts[0])
    numbers = next(rows).column("n").to_pylist()
    archive(shop, tmp_path)
    assert shop.client.xlen("s") == 11_000

    for batch in rows:
        numbers += batch.column("n").to_pylist()

    assert numbers == list(range(1, 20_001))


@pytest.mark.parametrize("question", ["look_at_all", "cut_all", "limit_all"])
def test_entries_archived_and_trimmed_during_planning_are_counted_once(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    shop.add("s", range(1, 101))
    archive(shop, tmp_path)
    shop.add("s", range(101, 1001))
    query = Query(shop, archive=str(tmp_path), maxEntriesPerTrigger="700")
    shop.client.delete("{s}:hw:queries")
    kind = SplitPlanner if shop.name == "headwater" else LuaPlanner
    answer = getattr(kind, question)
    asked: list[str] = []

    def archive_first(self: Any, *of: Any) -> Any:
        asked.append(question)
        if len(asked) == 1:
            monkeypatch.setattr(kind, question, answer)
            archive(shop, tmp_path)
            assert shop.client.xlen("s") == 0
            monkeypatch.setattr(kind, question, archive_first)
        return answer(self, *of)

    monkeypatch.setattr("headwater.spark.log_mode.streaming.Register.record", lambda *_of: None)
    monkeypatch.setattr(kind, question, archive_first)

    assert [len(batch) for batch in query.batches()] == [700, 300]
    assert asked


@pytest.mark.slow
def test_readers_see_no_gap_and_no_duplicate_during_writes_archiving_and_trims(
    shop: Shop, tmp_path: Path
) -> None:
    rounds, size = 12, 400
    shop.add("s", range(1, size + 1))
    ended = threading.Event()
    failures: list[BaseException] = []

    def write_and_archive() -> None:
        try:
            for number in range(1, rounds):
                shop.add("s", range(number * size + 1, (number + 1) * size + 1))
                archive(shop, tmp_path, step_entries=150)
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=write_and_archive)
    query = Query(shop, archive=str(tmp_path), maxEntriesPerTrigger="333")
    query_read: list[int] = []
    thread.start()
    looks = 0
    while not ended.is_set() or not looks:
        found = Table(shop, tmp_path, minPartitions="3").numbers()
        assert found == list(range(1, len(found) + 1))
        query_read += query.read() if query.plan() else []
        looks += 1
    thread.join()
    query_read += [number for batch in query.batches() for number in batch]

    assert failures == []
    assert Table(shop, tmp_path).numbers() == query_read == list(range(1, rounds * size + 1))


def test_min_partitions_splits_archive_and_stream_evenly(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 1001))
    archive(shop, tmp_path)
    shop.add("s", range(1001, 2001))

    counts = [part.count for part in ranges_of(Table(shop, tmp_path, minPartitions="8").parts)]

    assert sum(counts) == 2000
    assert len(counts) == 8
    assert max(counts) == 250


def test_a_pattern_finds_archived_streams_whose_keys_are_gone(shop: Shop, tmp_path: Path) -> None:
    shop.add("a.1", [1, 2])
    shop.add("a.2", [3])
    archive(shop, tmp_path, stream="a.*")
    shop.client.delete("a.1")
    shop.add("a.3", [4])

    table = Table(shop, tmp_path, "stream string, n bigint", stream="a.*")

    assert sorted((row["stream"], row["n"]) for row in table.rows()) == [
        ("a.1", 1),
        ("a.1", 2),
        ("a.2", 3),
        ("a.3", 4),
    ]


def test_each_stream_has_its_own_directory_whatever_its_name(shop: Shop, tmp_path: Path) -> None:
    names = ["a/b", "..", "_x", "a=b", "ä", "x" * 300, "x" * 301, "A", "a%2Fb"]
    for number, name in enumerate(names):
        shop.add(name, [number + 1])
        archive(shop, tmp_path, stream=f'["{name}"]')

    assert len(list(tmp_path.iterdir())) == len(names)
    for number, name in enumerate(names):
        assert Table(shop, tmp_path, stream=f'["{name}"]').numbers() == [number + 1]


def test_pushed_filters_skip_row_groups(shop: Shop, tmp_path: Path) -> None:
    from pyspark.sql.datasource import EqualTo

    shop.add("s", range(1, 101))
    archive(shop, tmp_path, step_entries=10)
    table = Table(shop, tmp_path, "id string, n bigint", pushdown="true")

    assert list(table.reader.pushFilters([EqualTo(("id",), "42-1")])) == []
    parts = table.reader.partitions()

    assert [(part.ids.end.ms, part.count) for part in ranges_of(parts)] == [(42, 1)]


def test_status_says_who_prevents_trimming(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 11))
    shop.client.xgroup_create("s", "billing", "4-1")
    archive(shop, tmp_path)
    shop.add("s", [11])

    (kept,) = archiver(shop, tmp_path).status()

    assert (kept.entries, kept.waiting, kept.end) == (10, 1, "10-1")
    assert kept.trimmable == "4-2"
    assert kept.needed_by == "group 'billing', to which it was not delivered"


PIPELINE = """
[source.events]
url = "{url}"
stream = "s"
schema = "n bigint"

[table.numbers]
mode = "append"
sql = "SELECT n FROM events"
path = "numbers"

[archive]
path = "history"
"""


def test_the_status_of_a_pipeline_says_who_prevents_trimming(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(PIPELINE.format(url=shop.url))
    pipeline = load(tmp_path / "shop.toml")
    assert pipeline.archive is not None
    shop.add("s", range(1, 11))
    shop.client.xgroup_create("s", "billing", "4-1")
    run_archive(None, pipeline.archive, lambda _line: None)

    found = status(pipeline)

    needed = "needed from 4-2 on by group 'billing', to which it was not delivered"
    assert status_text(found).splitlines()[-1].endswith(needed)
    (kept,) = found.as_json()["archive"]
    assert (kept["stream"], kept["end"], kept["trimmable"]) == ("s", "10-1", "4-2")


def test_the_report_of_a_stream_is_one_line_whatever_its_name() -> None:
    def report(stream: str) -> str:
        return str(Archived(stream, 1, 2, StreamID(3, 0), trimmed=0, seconds=0.1))

    assert report("orders é").startswith("archive of orders é: 1 entries")
    assert report("a\nb\x1b[2J\u2028").startswith(r"archive of 'a\nb\x1b[2J\u2028': 1 entries")
