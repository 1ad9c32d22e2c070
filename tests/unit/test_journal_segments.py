"""Segments are written once, in files of bounded size, and a failure leaves what was written before."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from headwater.engine.bodies.blobs import BlobPlace
from headwater.errors import JournalDamaged
from headwater.journal.disk.files import DiskFiles
from headwater.journal.format.records import FILE_HEADER_BYTES, read_file_header
from headwater.journal.segments.blobs import BlobDamaged
from headwater.journal.segments.segment_reader import SegmentReader
from headwater.journal.segments.segments import (
    segment_header,
    segment_name,
    segment_numbers,
)
from headwater.testing.files import CrashableFiles
from tests.blobs import SEED, check_readable, parts_of, writer_of
from tests.segment_scan import scan_segment

KIB = 1024
MIB = 1024 * KIB


# --- files --------------------------------------------------------------------------------------


def test_a_full_segment_is_followed_by_another() -> None:
    # Given segments with space for two blobs
    files = CrashableFiles()
    writer = writer_of(files, segment_bytes=600)

    # When five blobs and one that is larger than a segment are appended
    places = [writer.append(*parts_of(number)) for number in range(5)]
    places.append(writer.append(*parts_of(5, body_bytes=2 * MIB)))
    places.append(writer.append(*parts_of(6)))
    writer.sync()

    # Then each segment has two, the larger one has its own, and all are readable
    assert [place.segment for place in places] == [1, 1, 2, 2, 3, 4, 5]
    for number, place in enumerate(places):
        check_readable(files, number, place, body_bytes=2 * MIB if number == 5 else 40)
    assert segment_numbers(files) == [1, 2, 3, 4, 5]


def test_a_sync_makes_file_and_name_durable_once() -> None:
    # Given two blobs
    files = CrashableFiles()
    writer = writer_of(files)
    writer.append(*parts_of(0))
    writer.append(*parts_of(1))
    assert writer.unsynced_bytes > 0

    # When they are synced, and one more is appended and synced
    writer.sync()
    assert writer.unsynced_bytes == 0
    first = files.transcript[-2:]
    writer.append(*parts_of(2))
    writer.sync()
    writer.sync()

    # Then the file is fsynced each time that something was written, and the directory once
    assert first == ["sync segment-000001", "sync directory"]
    syncs = [line for line in files.transcript if line.startswith("sync")]
    assert syncs == [*first, "sync segment-000001"]


def test_space_is_allocated_in_steps_that_grow() -> None:
    # Given a writer of usual segments
    files = CrashableFiles()
    writer = writer_of(files, segment_bytes=64 * MIB)
    parts = parts_of(1, body_bytes=512 * KIB)
    sizes = []

    # When blobs of 512 KiB fill one and begin another
    while writer.number != 2:
        writer.append(*parts)
        sizes.append(files.reads.size(segment_name(1)) // MIB)

    # Then the file doubled first, then grew by 8 MiB, and never exceeded its size
    assert sorted(set(sizes)) == [1, 2, 4, *range(8, 65, 8)]
    assert files.reads.size(segment_name(2)) == MIB


def test_a_number_is_never_used_twice() -> None:
    # Given a segment 1
    files = CrashableFiles()
    first = writer_of(files)
    place = first.append(*parts_of(1))

    # When another writer is given the same number
    # Then it refuses, and the segment is as it was
    with pytest.raises(FileExistsError):
        writer_of(files).append(*parts_of(2))
    check_readable(files, 1, place)


def test_a_new_writer_begins_a_new_segment() -> None:
    files = CrashableFiles()
    place = writer_of(files, first=7).append(*parts_of(1))
    assert place == place._replace(segment=7, offset=FILE_HEADER_BYTES)
    assert writer_of(files, first=8).append(*parts_of(2)).segment == 8


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("segment-000001", 1),
        ("segment-1000000", 1000000),
        ("segment-0000001", None),
        ("segment-00001", None),
        ("segment-000001.new", None),
        ("journal-000001", None),
    ],
)
def test_only_the_name_of_a_segment_has_a_number(*, name: str, number: int | None) -> None:
    files = CrashableFiles()
    files.create(name, 0)
    assert segment_numbers(files) == ([] if number is None else [number])


def test_no_segment_is_taken_for_a_journal_file() -> None:
    assert read_file_header(memoryview(segment_header(1, SEED))) is None


def test_a_damaged_file_header_hides_no_blob() -> None:
    files = CrashableFiles()
    place = writer_of(files).append(*parts_of(4))
    files.corrupt(segment_name(1), 0, bytes(FILE_HEADER_BYTES))
    check_readable(files, 4, place)
    found = list(scan_segment(files, segment_name(1), SEED))
    assert found == [(parts_of(4)[0], place)]


def test_only_segments_are_searched_for_blobs() -> None:
    with pytest.raises(JournalDamaged, match="not a segment"):
        next(scan_segment(CrashableFiles(), "journal-000001", SEED))


# --- failures -----------------------------------------------------------------------------------


def test_a_full_disk_refuses_a_blob_and_keeps_those_before() -> None:
    # Given a disk of 3 MiB
    files = CrashableFiles(capacity=3 * MIB)
    writer = writer_of(files, segment_bytes=64 * MIB)
    places: list[BlobPlace] = []

    # When blobs are appended until it is full
    with pytest.raises(OSError, match="No space") as caught:
        while True:
            places.append(writer.append(*parts_of(len(places), body_bytes=100 * KIB)))
    assert caught.value.errno == errno.ENOSPC

    # Then nearly all of it was used, and every blob before can be made durable
    assert len(places) >= 28
    writer.sync()
    for number, place in enumerate(places):
        check_readable(files, number, place, body_bytes=100 * KIB)
    # And the next blob is written when there is space again
    files.capacity = 6 * MIB
    check_readable(files, 99, writer.append(*parts_of(99)))


@pytest.mark.parametrize("passes", [0, 1])
def test_a_failed_write_ends_the_segment(passes: int) -> None:
    # Given a segment with a blob that is not durable
    files = CrashableFiles()
    writer = writer_of(files)
    first = writer.append(*parts_of(1))

    # When the write of a blob fails halfway, or of the first one of the next segment
    files.fail("write", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        writer.append(*parts_of(2, body_bytes=3000))
    if passes:
        files.fail("write", error=errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            writer.append(*parts_of(2))
        assert segment_numbers(files) == [1]
    second = writer.append(*parts_of(3))
    writer.sync()

    # Then the next blob is in another segment, and both are durable
    assert second.segment == 2 + passes
    for image in files.all_crash_images():
        check_readable(image, 1, first)
        check_readable(image, 3, second)
        # And what was written of the other has no valid body
        found, *torn = [place for _head, place in scan_segment(image, segment_name(1), SEED)]
        assert found == first
        for place in torn:
            with pytest.raises(BlobDamaged):
                SegmentReader(image, SEED).body(place)


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_after_a_failed_fsync_the_writer_refuses_everything(operation: str) -> None:
    # Given a blob
    files = CrashableFiles()
    writer = writer_of(files)
    writer.append(*parts_of(1))

    # When making it durable fails
    files.fail(operation)
    with pytest.raises(OSError, match="Input/output"):
        writer.sync()
    before = list(files.transcript)

    # Then nothing is written or fsynced any more
    for attempt in (writer.sync, writer.finish, lambda: writer.append(*parts_of(2))):
        with pytest.raises(OSError, match="an fsync of a segment failed"):
            attempt()
    assert files.transcript == before


def test_an_unreadable_sector_is_damage_of_its_part_only() -> None:
    # Given three blobs, and a disk that cannot read a byte of the first head and of a body
    files = CrashableFiles()
    writer = writer_of(files)
    places = [writer.append(*parts_of(number)) for number in range(3)]
    reader = SegmentReader(files, SEED)
    files.reads.failing = {
        (segment_name(1), places[0].offset),
        (segment_name(1), places[1].body_offset),
    }

    # When they are read
    # Then the ids come from the second copy, and only that body is lost
    assert reader.ids(places[0]) == parts_of(0)[1]
    assert reader.body(places[0]) == parts_of(0)[2]
    with pytest.raises(BlobDamaged, match=r"Input/output error.*stream number 1"):
        reader.body(places[1])
    check_readable(files, 2, places[2])


def test_a_missing_segment_is_damage_of_its_blobs() -> None:
    files = CrashableFiles()
    place = writer_of(files).append(*parts_of(1))
    files.remove(segment_name(1))
    with pytest.raises(BlobDamaged, match=segment_name(1)):
        SegmentReader(files, SEED).body(place)


def test_cold_bodies_are_not_cached() -> None:
    files = CrashableFiles()
    place = writer_of(files).append(*parts_of(1))
    reader = SegmentReader(files, SEED)
    assert reader.cached_body(place) == parts_of(1)[2]
    files.reads.cold = True
    assert reader.cached_body(place) is None
    assert reader.body(place) == parts_of(1)[2]


# --- threads ------------------------------------------------------------------------------------


def test_blobs_are_read_while_others_are_appended(tmp_path: Path) -> None:
    # Given a directory on disk, with small segments
    files = DiskFiles(tmp_path / "data")
    files.lock()
    writer = writer_of(files, segment_bytes=64 * KIB)
    places: list[BlobPlace] = []
    ended = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        reader = SegmentReader(files, SEED)
        number = 0
        try:
            while not ended.is_set() or number < len(places):
                if number >= len(places):
                    continue
                place = places[number]
                head, ids, body = parts_of(number, body_bytes=2000)
                assert reader.head_and_ids(place) == (head, ids)
                assert reader.body(place) == body
                assert reader.cached_body(place) in {None, body}
                number += 1
        except BaseException as error:
            failures.append(error)

    # When three threads read what a fourth appends
    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(300):
        places.append(writer.append(*parts_of(number, body_bytes=2000)))
        if number % 50 == 0:
            writer.sync()
            files.close(segment_name(places[0].segment))
    ended.set()
    for thread in threads:
        thread.join()
    files.unlock()

    # Then each of them reads every blob
    assert failures == []
    assert len({place.segment for place in places}) > 5


def test_neighbours_are_read_ahead_together(tmp_path: Path) -> None:
    # Given blobs in two segments on disk
    files = DiskFiles(tmp_path / "data")
    files.lock()
    writer = writer_of(files, segment_bytes=64 * KIB)
    places = [writer.append(*parts_of(number, body_bytes=20 * KIB)) for number in range(5)]

    # When all are read ahead, among them one that does not exist
    reader = SegmentReader(files, SEED)
    reader.read_ahead([*reversed(places), places[0]._replace(segment=9)])

    # Then their bodies are in memory
    assert [reader.body(place) for place in places] == [
        parts_of(number, body_bytes=20 * KIB)[2] for number in range(5)
    ]
    files.unlock()
