"""The contents of an archive's files, and what remains after an archiver was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.common.model import MIN_ID, IDRange, StreamID
from headwater.errors import DecodeError
from headwater.spark.archive.archiver import Archiver
from headwater.spark.archive.contents import Segment, inline
from headwater.spark.archive.files import DayWriter, PartWriter, bodies_of, day_of, typed_columns
from headwater.spark.archive.manifest import Manifest
from headwater.spark.archive.reading import ArchivedRows
from headwater.spark.archive.trimming import Trimmer
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.positions import Position
from headwater.spark.decoding.columns import RowShape
from headwater.spark.decoding.page import ListPage, Page
from headwater.spark.decoding.rows import RowBuilder
from tests.spark.archives import Table, archive, files_of
from tests.spark.stores import Shop

pytestmark = pytest.mark.slow

SCHEMA = "n bigint, price decimal(6, 2), item string, at timestamp, tags array<string>, raw binary"
OPTIONS = SourceOptions(url="redis://localhost", streams=("s",), archive="x")

names = st.sampled_from([b"n", b"price", b"item", b"at", b"tags", b"raw", b"hw.x"]) | st.binary(
    max_size=3
)
values = (
    st.integers(-5, 5).map(lambda number: str(number).encode())
    | st.sampled_from([b"9.50", b"9.5", b"2026-11-21T10:00:00Z", b'["a"]', b"", b"tea", b"\xff"])
    | st.binary(max_size=6)
)
bodies = st.lists(st.tuples(names, values), min_size=1, max_size=5)
regular = st.tuples(st.integers(), st.sampled_from(["tea", "kokos"])).map(
    lambda row: [(b"n", str(row[0]).encode()), (b"item", row[1].encode())]
)
entries = st.lists(bodies, min_size=1, max_size=12) | st.lists(regular, min_size=1, max_size=12)
moments = st.integers(0, 3 * 86_400_000) | st.integers(0, 2**64 - 1)


def page_of(rising: list[int], fields: list[Any]) -> Page:
    ids = [f"{ms}-{place}".encode() for place, ms in enumerate(rising)]
    return ListPage(ids, [[part for pair in body for part in pair] for body in fields])


def written(directory: Path, page: Page, schema: str, size: int = 5) -> Manifest:
    """Archive ``page`` in row groups of ``size``."""
    with pytest.MonkeyPatch.context() as patch:  # examples need not survive a power loss
        patch.setattr("headwater.spark.core.durable.os.fsync", lambda _number: None)
        return _written(directory, page, schema, size)


def _written(directory: Path, page: Page, schema: str, size: int) -> Manifest:
    manifest = Manifest(directory, "s")
    typed = typed_columns(parse_schema(schema), OPTIONS)
    writer = PartWriter(manifest.directory, "s", typed, OPTIONS, group_entries=size)
    files = writer.write(
        ListPage(page.ids[at : at + 3], page.bodies[at : at + 3]) for at in range(0, len(page), 3)
    )
    end = Position(StreamID.parse(page.ids[-1]), len(page))
    manifest.append(Segment(Position(MIN_ID, 0), end, typed.json(), "fields", inline(files)))
    return manifest


@given(fields=entries, ms=st.lists(moments, min_size=12, max_size=12).map(sorted))
@settings(max_examples=60)
def test_any_entry_is_read_back_unchanged(
    fields: list[Any], ms: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    page = page_of(ms[: len(fields)], fields)

    manifest = written(tmp_path_factory.mktemp("archive"), page, SCHEMA)

    found: list[tuple[bytes, list[bytes]]] = []
    for file in files_of(manifest):
        table = pq.read_table(manifest.directory / file.name, partitioning=None)
        for batch in table.to_batches():
            ids = [id_.encode() for id_ in batch.column("id").to_pylist()]
            found += zip(ids, bodies_of(batch.column("fields")), strict=True)
    assert found == list(zip(page.ids, page.bodies, strict=True))


@given(
    fields=entries,
    ms=st.lists(moments, min_size=12, max_size=12).map(sorted),
    schema=st.sampled_from(
        [
            SCHEMA,
            SCHEMA + ", _rescued string",
            "id string, timestamp timestamp, n bigint, stream string, item string",
            "n int, price double, item binary",
            "id string, fields map<string, string>",
            "n bigint, fields map<string, binary>",
            "stream string",
            "n bigint not null, item string",
        ]
    ),
    mode=st.sampled_from(["permissive", "dropmalformed", "failfast"]),
    reserved=st.booleans(),
    window=st.tuples(st.integers(0, 11), st.integers(1, 12)),
)
@settings(max_examples=100)
def test_the_archive_has_the_same_rows_as_the_stream(
    fields: list[Any],
    ms: list[int],
    schema: str,
    mode: Any,
    reserved: bool,
    window: tuple[int, int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    page = page_of(ms[: len(fields)], fields)
    manifest = written(tmp_path_factory.mktemp("archive"), page, SCHEMA)
    options = SourceOptions(
        url="redis://localhost", streams=("s",), mode=mode, include_metadata=reserved
    )
    shape = RowShape.of(parse_schema(schema), options)
    low = min(window[0], len(page) - 1)
    high = min(low + window[1], len(page))
    part = ListPage(page.ids[low:high], page.bodies[low:high])
    ids = IDRange(StreamID.parse(page.ids[low]), StreamID.parse(page.ids[high - 1]))

    # As Arrow's tables, because Python has no datetime after the year 9999.
    def archived() -> tuple[pa.Table, int]:
        builder = RowBuilder(shape, "s")
        rows = list(ArchivedRows(options, manifest, builder).read(ids))
        table = pa.Table.from_batches([batch for batch, _n in rows], builder.schema)
        return table, sum(entries for _, entries in rows)

    try:
        expected = pa.Table.from_batches([RowBuilder(shape, "s").build(part)])
    except DecodeError:
        with pytest.raises(DecodeError):
            archived()
        return
    assert archived() == (expected, len(part))


def test_the_directory_is_named_after_the_day() -> None:
    assert day_of(0) == "1970-01-01"
    assert day_of(86_400_000 - 1) == "1970-01-01"
    assert day_of(86_400_000) == "1970-01-02"
    assert day_of(2**64 - 1) == "__HIVE_DEFAULT_PARTITION__"


@pytest.mark.peer
@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_each_file_contains_one_day(shop: Shop, tmp_path: Path) -> None:
    day = 86_400_000
    shop.add("s", [1, 2, day - 1, day, day + 1, 5 * day])

    archive(shop, tmp_path)

    days = sorted(path.parent.name for path in tmp_path.rglob("*.parquet"))
    assert days == ["day=1970-01-01", "day=1970-01-02", "day=1970-01-06"]
    assert pq.read_table(tmp_path / "s").column("n").to_pylist() == [
        *[1, 2, day - 1, day, day + 1, 5 * day]
    ]


@pytest.mark.peer
@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_bad_values_in_the_archive_are_reported(
    shop: Shop, tmp_path: Path, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", [1, 2])
    shop.client.xadd("s", {"n": "three"}, id="3-1")
    archive(shop, tmp_path)

    assert Table(shop, tmp_path).numbers() == [1, 2, None]
    assert "entries that did not fit the schema: 1" in warned.text
    rescued = Table(shop, tmp_path, "n bigint, _rescued string").rows()
    assert [row["_rescued"] for row in rescued] == [None, None, '{"n": "three"}']
    assert Table(shop, tmp_path, mode="dropmalformed").numbers() == [1, 2]
    with pytest.raises(DecodeError, match="n='three' is not a valid bigint"):
        Table(shop, tmp_path, mode="failfast").numbers()


class Killed(BaseException):
    """An exception that the archiver does not handle."""


def kill(*_of: Any, **_how: Any) -> NoReturn:
    raise Killed


def half_a_line(self: Manifest, _segment: Segment) -> NoReturn:
    with (self.state / "manifest.jsonl").open("ab") as manifest:
        manifest.write(b'{"from": "10-1", "added_from"')
    raise Killed


@pytest.mark.peer
@pytest.mark.parametrize("shop", ["headwater", "valkey-9.1"], indirect=True)
@pytest.mark.parametrize(
    ("place", "what"),
    [
        ((DayWriter, "_flush"), kill),
        ((DayWriter, "_close"), kill),
        ((Archiver, "_write"), kill),
        ((Manifest, "append"), kill),
        ((Manifest, "append"), half_a_line),
        ((Trimmer, "trim"), kill),
        ((Trimmer, "_remove_below"), kill),
    ],
)
def test_a_killed_archiver_loses_no_entry_and_duplicates_none(
    shop: Shop, tmp_path: Path, place: tuple[type, str], what: Any
) -> None:
    shop.add("s", range(1, 11))
    archive(shop, tmp_path)
    shop.add("s", range(11, 31))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*place, what)
        with pytest.raises(Killed):
            archive(shop, tmp_path, step_entries=7)
    if place[0] is not Trimmer:  # then all files are listed
        leftover = tmp_path / "s" / "day=1970-01-01" / "left-by-a-task.parquet"
        leftover.write_bytes(b"half a file")

    assert Table(shop, tmp_path).numbers() == list(range(1, 31))
    archive(shop, tmp_path, step_entries=7)

    assert shop.client.xlen("s") == 0
    assert Table(shop, tmp_path).numbers() == list(range(1, 31))
    named = {file.name for file in files_of(Manifest(tmp_path, "s"))}
    there = {str(file.relative_to(tmp_path / "s")) for file in tmp_path.rglob("*.parquet")}
    assert there == named
