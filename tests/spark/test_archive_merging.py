"""Small files of an archive are merged while others read it or a run is killed, and lists keep a task's work small."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.common.model import MIN_ID, IDRange, StreamID
from headwater.errors import DataLoss, DeclarationError
from headwater.spark import archived_files
from headwater.spark.archive import leftovers, merging
from headwater.spark.archive.contents import Segment, inline
from headwater.spark.archive.files import DayWriter, PartWriter, typed_columns
from headwater.spark.archive.index import Index
from headwater.spark.archive.manifest import LIST_FILES, Manifest
from headwater.spark.archive.merging import FAN, merge, merge_files
from headwater.spark.archive.reading import ArchivedRows
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.positions import Position
from headwater.spark.decoding.columns import RowShape
from headwater.spark.decoding.page import ListPage
from headwater.spark.decoding.rows import RowBuilder
from headwater.testing.clock import ManualClock
from tests.spark.archives import Table, archive, files_of
from tests.spark.stores import Shop

pytestmark = pytest.mark.slow

OPTIONS = SourceOptions(url="redis://localhost", streams=("s",), archive="x")
DAY = 86_400_000
GOLDEN = Path(__file__).parent / "golden_archive"


def here(tasks: Any) -> Any:
    """Merge files in this process."""
    return [merge_files(task) for task in tasks]


def add_step(manifest: Manifest, ids: list[int], schema: str = "n bigint") -> None:
    """Archive entries with the ids ``<ms>-1`` and the field ``n`` in one step."""
    typed = typed_columns(parse_schema(schema), OPTIONS)
    page = ListPage([f"{ms}-1".encode() for ms in ids], [[b"n", b"%d" % ms] for ms in ids])
    writer = PartWriter(manifest.directory, "s", typed, OPTIONS, group_entries=4)
    files = writer.write([page]) if ids else []
    start = manifest.end
    end = Position(StreamID(ids[-1], 1), start.added + len(ids)) if ids else start
    manifest.append(Segment(start, end, typed.json(), "fields", inline(files)))


def numbers(manifest: Manifest, start: StreamID = MIN_ID, end: int = 2**60) -> list[int]:
    """Read the archived entries' field ``n``."""
    builder = RowBuilder(RowShape.of(parse_schema("n bigint"), OPTIONS), "s")
    rows = ArchivedRows(OPTIONS, manifest, builder).read(IDRange(start, StreamID(end, 0)))
    return [row["n"] for batch, _entries in rows for row in batch.to_pylist()]


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync nothing: these tests do not cut the power."""
    monkeypatch.setattr("headwater.spark.core.durable.os.fsync", lambda _number: None)


# --- what is merged -------------------------------------------------------------------------------


def test_the_files_of_a_day_do_not_grow_with_the_number_of_steps(tmp_path: Path) -> None:
    # Given an archive that grows every five minutes, for three days
    manifest = Manifest(tmp_path, "s")
    minutes, most = range(0, 3 * 1440, 5), 0
    for minute in minutes:
        add_step(manifest, [minute * 60_000 + 1])
        merge(manifest, here, now_ms=minute * 60_000)
        most = max(most, len(manifest.segments()))
    # Then segments and files are few at any time, and every entry is there once
    assert most <= 3 * (FAN - 1) + 1
    days: dict[str, int] = {}
    for file in files_of(manifest):
        days[file.day] = days.get(file.day, 0) + 1
    assert len(days) == 3
    assert max(days.values()) <= 2 * (FAN - 1)
    assert numbers(manifest) == [minute * 60_000 + 1 for minute in minutes]


steps = st.lists(
    st.tuples(
        st.lists(st.integers(1, DAY // 2), max_size=5),  # distances between ids, in ms
        st.sampled_from(["n bigint", "n bigint", "n bigint", "n int, x string"]),
    ),
    min_size=1,
    max_size=30,
)


@given(steps=steps, large=st.integers(200, 4000), fan=st.integers(2, 4))
@settings(max_examples=60, deadline=None)
def test_merging_changes_no_entry_no_end_and_no_rank(
    steps: list[tuple[list[int], str]],
    large: int,
    fan: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    manifest = Manifest(tmp_path_factory.mktemp("archive"), "s")
    ids: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "FAN", fan)
        patch.setattr(merging, "FILE_BYTES", large)
        patch.setattr("headwater.spark.archive.manifest.INLINE_FILES", 2)
        patch.setattr("headwater.spark.archive.manifest.LIST_FILES", 3)
        for distances, schema in steps:
            begin = ids[-1] if ids else 0
            added = [begin + sum(distances[: place + 1]) for place in range(len(distances))]
            add_step(manifest, added, schema)
            merge(manifest, here, now_ms=0)
            ids += added

        again = Manifest(manifest.directory.parent, "s")
        index = Index(again)
        assert numbers(again) == ids
        assert again.end == manifest.end
        assert [index.id_at(rank + 1) for rank in range(len(ids))] == [
            StreamID(ms, 1) for ms in ids
        ]
        places = index.within(IDRange(MIN_ID, StreamID(2**60, 0)))
        ends = list(accumulate((place.group.entries for place in places), initial=0))
        for rank, ms in enumerate(ids):
            assert index.rank(StreamID(ms, 1)) == rank + 1
            assert index.rank(StreamID(ms, 0)) == rank
            edge = index.edge_near(rank)
            assert edge in ends
            assert abs(edge - rank) == min(abs(end - rank) for end in ends)
            assert numbers(again, StreamID(ms, 0)) == ids[rank:]


def test_segments_with_other_columns_are_not_merged_with_each_other(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path, "s")
    for number in range(1, 3 * FAN):
        add_step(manifest, [number], "n bigint" if number < FAN else "n int")
        merge(manifest, here, now_ms=0)

    assert [one.level for one in manifest.segments()] == [0] * (FAN - 1) + [1, 1]
    assert numbers(manifest) == list(range(1, 3 * FAN))


def test_a_damaged_file_remains_while_the_others_are_merged(
    tmp_path: Path, warned: pytest.LogCaptureFixture
) -> None:
    # Given a damaged file on the first of two days
    manifest = Manifest(tmp_path, "s")
    for number in range(1, FAN):
        add_step(manifest, [number, DAY + number] if number == FAN - 1 else [number])
    bad = manifest.directory / files_of(manifest)[2].name
    bad.write_bytes(bad.read_bytes()[:-10])
    # When segments are merged
    add_step(manifest, [DAY + FAN])
    merge(manifest, here, now_ms=0)
    # Then the files of that day remain, with a warning, and reading names the damage
    assert [one.level for one in manifest.segments()] == [1]
    assert [file.day for file in files_of(manifest)] == ["day=1970-01-01"] * (FAN - 1) + [
        "day=1970-01-02"
    ]
    assert f"{FAN - 1} files of {manifest.directory} are not merged" in warned.text
    with pytest.raises(DataLoss, match=bad.name):
        numbers(manifest)


def test_a_year_of_steps_without_merging_is_caught_up_with_in_steps(tmp_path: Path) -> None:
    # Given an archive of many steps, none of which was merged
    manifest = Manifest(tmp_path, "s")
    for number in range(1, 251):
        add_step(manifest, [number])

    # When a merge is killed in its second step
    def killed_second(tasks: Any) -> Any:
        if len(manifest.segments()) < 250:
            raise Killed
        return here(tasks)

    with pytest.raises(Killed):
        merge(manifest, killed_second, now_ms=0)
    # Then the first one is done, and the next run does the others
    assert [one.level for one in manifest.segments()] == [1, *[0] * 150]
    merge(manifest, here, now_ms=0)
    assert [one.level for one in manifest.segments()] == [1, 1, 1]
    assert numbers(manifest) == list(range(1, 251))


def test_files_that_a_restored_manifest_lists_are_not_removed(tmp_path: Path) -> None:
    # Given an archive, whose manifest is restored from before a merge
    manifest = Manifest(tmp_path, "s")
    for number in range(1, FAN + 1):
        add_step(manifest, [number])
    before = (manifest.state / "manifest.jsonl").read_bytes()
    merge(manifest, here, now_ms=0)
    (manifest.state / "manifest.jsonl").write_bytes(before)
    # When the time of the replaced files has passed
    again = Manifest(tmp_path, "s")
    leftovers.remove_replaced(again, now_ms=leftovers.KEEP_MS)
    # Then they are still there
    assert numbers(again) == list(range(1, FAN + 1))


# --- readers and kills ----------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_readers_that_were_planned_before_a_merge_read_on(shop: Shop, tmp_path: Path) -> None:
    # Given a reader of an archive of small files
    clock = ManualClock()
    for number in range(1, FAN):
        shop.add("s", [number])
        archive(shop, tmp_path, clock=clock)
    small = {file.name for file in files_of(Manifest(tmp_path, "s"))}
    table = Table(shop, tmp_path)
    manifest = Manifest(tmp_path, "s")
    index = Index(manifest)
    # When these files are merged
    shop.add("s", [FAN])
    (done,) = archive(shop, tmp_path, clock=clock)
    # Then they remain for a while
    assert done.merged == FAN
    assert str(done).endswith(f"; {FAN} files merged")
    assert all((tmp_path / "s" / name).exists() for name in small)
    (merged,) = archived_files(tmp_path, "s")
    assert pq.read_table(merged, partitioning=None).column("n").to_pylist() == list(
        range(1, FAN + 1)
    )
    assert table.numbers() == list(range(1, FAN))
    assert index.rank(StreamID(5, 2)) == 5
    # And after that they are gone, and their entries are found in the merged file
    clock.advance(leftovers.KEEP_MS / 1000)
    archive(shop, tmp_path, clock=clock)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert table.numbers() == list(range(1, FAN))


def test_a_reader_looks_up_files_that_are_removed_while_it_reads(tmp_path: Path) -> None:
    # Given a reader that has read one of several files
    manifest = Manifest(tmp_path, "s")
    for number in range(1, FAN + 1):
        add_step(manifest, [number])
    builder = RowBuilder(RowShape.of(parse_schema("n bigint"), OPTIONS), "s")
    rows = ArchivedRows(OPTIONS, Manifest(tmp_path, "s"), builder).read(
        IDRange(MIN_ID, StreamID(FAN, 2))
    )
    found = [next(rows)[0].to_pylist()[0]["n"]]
    # When they are merged and removed
    merge(manifest, here, now_ms=0)
    leftovers.remove_replaced(manifest, now_ms=leftovers.KEEP_MS)
    # Then it reads the others from the merged file
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    found += [row["n"] for batch, _entries in rows for row in batch.to_pylist()]
    assert found == list(range(1, FAN + 1))


class Killed(BaseException):
    """An exception that the archiver does not handle."""


def kill(*_of: Any, **_how: Any) -> NoReturn:
    raise Killed


def killed_after(function: Callable[..., Any]) -> Callable[..., NoReturn]:
    def call(*of: Any, **how: Any) -> NoReturn:
        function(*of, **how)
        raise Killed

    return call


@pytest.mark.peer
@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
@pytest.mark.parametrize(
    ("place", "what"),
    [
        ((DayWriter, "_flush"), kill),
        ((DayWriter, "_close"), killed_after(DayWriter._close)),
        ((Manifest, "replace"), kill),
        ((Manifest, "replace"), killed_after(Manifest.replace)),
        ((merging, "replaced"), killed_after(leftovers.replaced)),
        ((merging, "remove_unfinished"), kill),
    ],
)
def test_a_killed_merge_loses_no_entry_and_leaves_no_file(
    shop: Shop, tmp_path: Path, place: tuple[Any, str], what: Any
) -> None:
    # Given a merge that is killed
    clock = ManualClock()
    for number in range(1, FAN):
        shop.add("s", [number])
        archive(shop, tmp_path, clock=clock)
    shop.add("s", [FAN])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "FAN", FAN + 1)
        archive(shop, tmp_path, clock=clock)
        patch.setattr(merging, "FAN", FAN)
        patch.setattr(*place, what)
        with pytest.raises(Killed):
            archive(shop, tmp_path, clock=clock)
    assert Table(shop, tmp_path).numbers() == list(range(1, FAN + 1))
    # When the next run begins
    archive(shop, tmp_path, clock=clock)
    clock.advance(leftovers.KEEP_MS / 1000)
    archive(shop, tmp_path, clock=clock)
    # Then the merge is done, and nothing else is there
    assert [one.level for one in Manifest(tmp_path, "s").segments()] == [1]
    assert Table(shop, tmp_path).numbers() == list(range(1, FAN + 1))
    named = {file.name for file in files_of(Manifest(tmp_path, "s"))}
    there = {str(file.relative_to(tmp_path / "s")) for file in tmp_path.rglob("*.parquet")}
    assert there == named
    assert {path.name for path in (tmp_path / "s" / "_headwater").iterdir()} <= {
        *("manifest.jsonl", "lock", "replaced.jsonl"),
    }


# --- lists, and the formats before ----------------------------------------------------------------


def test_a_range_is_read_without_the_lists_of_other_ranges(tmp_path: Path) -> None:
    # Given an archive of many days, in lists
    manifest = Manifest(tmp_path, "s")
    add_step(manifest, [day * DAY for day in range(1, 5 * LIST_FILES + 1)])
    lists = [one for segment in manifest.segments() for one in segment.lists]
    assert [one.file_count for one in lists] == [LIST_FILES] * 5
    # When the other lists are missing
    for place in (0, 1, 3, 4):
        (manifest.directory / str(lists[place].name)).unlink()
    # Then a range within the third one is planned and read
    again = Manifest(tmp_path, "s")
    first = 2 * LIST_FILES + 10
    assert Index(again).count(StreamID(first * DAY, 0), StreamID((first + 5) * DAY, 0)) == 5
    assert numbers(again, StreamID(first * DAY, 0), (first + 2) * DAY) == [
        first * DAY,
        (first + 1) * DAY,
    ]
    # And one that is needed is named
    with pytest.raises(DataLoss, match=f"{lists[1].name} is missing, with the names of"):
        numbers(again, StreamID(LIST_FILES * DAY, 2))


@pytest.mark.parametrize("text", ["[]", "[{}]", "nothing", '[{"name": "../x"}]'])
def test_a_damaged_list_is_named(tmp_path: Path, text: str) -> None:
    manifest = Manifest(tmp_path, "s")
    add_step(manifest, [day * DAY for day in range(1, 12)])
    (among,) = manifest.segments()[0].lists
    (manifest.directory / str(among.name)).write_text(text)

    with pytest.raises(DataLoss, match=rf"{among.name} is damaged"):
        numbers(Manifest(tmp_path, "s"))


@pytest.mark.peer
@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_an_archive_of_the_format_before_is_continued(shop: Shop, tmp_path: Path) -> None:
    # Given an archive of twelve steps of ten entries, written by a version that did not merge
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    shop.add("s", range(1, 131))
    assert Table(shop, tmp_path).numbers() == list(range(1, 131))
    # When this version archives
    left = tmp_path / "s" / "day=1970-01-01" / "left-by-a-killed-run.parquet"
    left.write_bytes(b"half a file")
    (done,) = archive(shop, tmp_path, trimming=None)
    # Then it continues it, merges its files, and the manifest has the new format
    assert (done.entries, done.merged) == (10, 13)
    assert not left.exists()
    manifest = Manifest(tmp_path, "s")
    assert (len(files_of(manifest)), manifest.format) == (1, 2)
    assert Table(shop, tmp_path).numbers() == list(range(1, 131))


def test_an_archive_of_a_later_format_is_refused(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path, "s")
    add_step(manifest, [1])
    file = manifest.state / "manifest.jsonl"
    file.write_text(file.read_text().replace('"format": 2', '"format": 3'))

    with pytest.raises(DeclarationError, match="has the format 3; this version of Headwater reads"):
        Manifest(tmp_path, "s").segments()
