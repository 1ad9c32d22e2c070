"""Damaged archives: the error names the file and the damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import DataLoss, DeclarationError, StoreInUse
from headwater.spark.archive.manifest import Manifest
from headwater.spark.core.durable import locked
from tests.spark.archives import Table, archive, files_of
from tests.spark.queries import Query
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer


def test_a_stream_recreated_with_old_ids_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 101))
    archive(shop, tmp_path)
    shop.client.delete("s")

    assert Table(shop, tmp_path).numbers() == list(range(1, 101))
    shop.add("s", range(1, 11))

    with pytest.raises(DataLoss, match="recreated or set back"):
        archive(shop, tmp_path)
    with pytest.raises(DataLoss, match="recreated or set back"):
        Table(shop, tmp_path)


def test_a_query_whose_stream_was_deleted_reads_no_archived_entry_twice(
    shop: Shop, tmp_path: Path, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 101))
    archive(shop, tmp_path)
    shop.add("s", range(101, 111))
    query = Query(shop, archive=str(tmp_path), failOnDataLoss="false")
    read = [number for batch in query.batches() for number in batch]
    shop.client.delete("s")
    read += [number for batch in query.batches() for number in batch]
    shop.add("s", range(200, 203))

    again = Query(shop, log=query.log, archive=str(tmp_path), failOnDataLoss="false")
    read += [number for batch in again.batches() for number in batch]

    assert read == [*range(1, 111), 200, 201, 202]
    assert "deleted, recreated or set back" in warned.text


def test_entries_removed_before_they_were_archived_are_data_loss(
    shop: Shop, tmp_path: Path, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 11))
    archive(shop, tmp_path, trimming=None)
    shop.add("s", range(11, 21))
    shop.delete("s", 15)

    with pytest.raises(DataLoss, match="1 of 10 entries"):
        archive(shop, tmp_path)
    archive(shop, tmp_path, ignoreDeletes="true")
    shop.add("s", [21])
    archive(shop, tmp_path)

    assert "1 of 10 entries" in warned.text
    assert Table(shop, tmp_path).numbers() == [*range(1, 15), *range(16, 22)]


def test_a_missing_file_is_data_loss_and_named(
    shop: Shop, tmp_path: Path, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("s", range(1, 11))
    archive(shop, tmp_path)
    shop.add("s", range(11, 21))
    archive(shop, tmp_path)
    first = files_of(Manifest(tmp_path, "s"))[0]
    (tmp_path / "s" / first.name).unlink()

    with pytest.raises(DataLoss, match=rf"{first.name} is missing, with 10 entries"):
        Table(shop, tmp_path).numbers()
    assert Table(shop, tmp_path, failOnDataLoss="false").numbers() == list(range(11, 21))
    assert "10 entries are omitted" in warned.text


@pytest.mark.parametrize("damage", ["cut", "changed", "replaced"])
@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_a_damaged_file_is_data_loss_and_named(shop: Shop, tmp_path: Path, damage: str) -> None:
    shop.add("s", range(1, 1001), item="tea")
    archive(shop, tmp_path)
    (name,) = (file.name for file in files_of(Manifest(tmp_path, "s")))
    file = tmp_path / "s" / name
    content = bytearray(file.read_bytes())
    if damage == "cut":
        content = content[:-10]
    elif damage == "changed":
        content[200] ^= 0xFF
    else:
        content[:] = b"x" * len(content)
    file.write_bytes(content)

    with pytest.raises(DataLoss, match=rf"{name} is damaged"):
        Table(shop, tmp_path, "id string, n bigint, fields map<string, string>").rows()


@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_a_damaged_manifest_and_another_streams_manifest_are_reported(
    shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 11))
    archive(shop, tmp_path)
    file = tmp_path / "s" / "_headwater" / "manifest.jsonl"
    whole = file.read_text()

    file.write_text(whole.replace('"entries": 10', '"entries": 11'))
    with pytest.raises(DataLoss, match=r"manifest.jsonl is damaged at line 2"):
        Table(shop, tmp_path)
    file.write_text(whole.replace('"archive": "s"', '"archive": "t"'))
    with pytest.raises(DeclarationError, match="is the archive of 't', not of 's'"):
        Table(shop, tmp_path)
    file.write_text(whole + '{"from": "10-')  # a write that was killed
    assert Table(shop, tmp_path).numbers() == list(range(1, 11))


@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_only_one_archiver_runs_at_a_time(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", range(1, 11))

    held = locked(Manifest(tmp_path, "s").state / "lock", StoreInUse)
    with held, pytest.raises(StoreInUse, match="another run is archiving"):
        archive(shop, tmp_path)
    assert archive(shop, tmp_path)[0].entries == 10


@pytest.mark.parametrize("shop", ["headwater"], indirect=True)
def test_a_url_is_refused_as_an_archive(shop: Shop, tmp_path: Path) -> None:
    shop.add("s", [1])

    with pytest.raises(DeclarationError, match=r"'s3://bucket/x' is a url"):
        Table(shop, "s3://bucket/x")  # type: ignore[arg-type]
