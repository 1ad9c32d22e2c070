"""Compaction copies live blobs whole and durably, leaves damaged ones, and keeps to its rate."""

from __future__ import annotations

import errno

import pytest

from headwater.engine.bodies.blobs import BlobPlace
from headwater.journal.segments.compaction import Compaction, compact, sparse_segments
from headwater.journal.segments.segment_reader import SegmentReader
from headwater.journal.segments.segments import segment_name, segment_numbers
from headwater.testing import ManualClock
from headwater.testing.files import CrashableFiles
from tests.blobs import SEED, check_readable, parts_of, writer_of

FAST = 1 << 40


def written(count: int) -> tuple[CrashableFiles, list[BlobPlace]]:
    """Return a directory with durable blobs 0 to ``count``-1 in small segments, and their places."""
    files = CrashableFiles()
    writer = writer_of(files, segment_bytes=2000)
    places = [writer.append(*parts_of(number)) for number in range(count)]
    writer.finish()
    return files, places


def compacted(files: CrashableFiles, places: list[BlobPlace]) -> Compaction:
    """Copy the blobs to segments from 100 on, as fast as possible."""
    writer = writer_of(files, first=100, segment_bytes=2000)
    return compact(places, SegmentReader(files, SEED), writer, FAST)


def test_segments_of_which_less_than_half_is_live_are_sparse() -> None:
    # Given four segments with different numbers of live blobs
    files, places = written(28)
    sizes = {number: files.reads.size(segment_name(number)) for number in segment_numbers(files)}
    assert len(sizes) == 4
    of_segment = {number: [one for one in places if one.segment == number] for number in sizes}
    kept = {1: of_segment[1], 2: of_segment[2][:2], 3: of_segment[3][:1], 4: []}
    live = {number: sum(place.size for place in kept[number]) for number in sizes}

    # When those to be compacted are chosen, then it is the two that have few live blobs
    assert sparse_segments(sizes, live) == {2, 3}


def test_copied_blobs_are_durable_and_whole() -> None:
    # Given blobs in several segments
    files, places = written(20)

    # When every third is copied
    live = places[::3]
    result = compacted(files, [*reversed(live), *live])

    # Then each is readable at its new place after any crash, and those of the old segments stay
    assert list(result.moved) == live
    assert result.damaged == {}
    assert result.stopped is None
    assert result.copied_bytes == sum(place.size for place in live)
    for image in files.all_crash_images():
        for number in range(0, 20, 3):
            check_readable(image, number, result.moved[places[number]])
            check_readable(image, number, places[number])
    # And they are readable without the old segments
    for number in {place.segment for place in places}:
        files.remove(segment_name(number))
    for number in range(0, 20, 3):
        check_readable(files, number, result.moved[places[number]])


def test_a_damaged_blob_stays_and_one_damaged_copy_of_ids_is_repaired() -> None:
    # Given three blobs: one with a damaged body, one with a damaged copy of its ids
    files, places = written(3)
    files.corrupt(segment_name(1), places[0].body_offset, bytes(5))
    files.corrupt(segment_name(1), places[1].offset, bytes(5))

    # When they are copied
    result = compacted(files, places)

    # Then the first stays and is reported
    assert list(result.damaged) == [places[0]]
    assert f"offset {places[0].body_offset}" in result.damaged[places[0]]
    # And the second has two valid copies at its new place
    assert list(result.moved) == places[1:]
    moved = result.moved[places[1]]
    files.corrupt(segment_name(moved.segment), moved.second_offset, bytes(5))
    check_readable(files, 1, moved)


def test_a_full_disk_stops_it_and_keeps_what_was_copied() -> None:
    # Given a disk with space for one more segment
    files, places = written(20)
    files.capacity = files.used_bytes() + 2500

    # When all blobs are copied
    result = compacted(files, places)

    # Then some are, durably, and the reason is returned
    assert 0 < len(result.moved) < 20
    assert "No space" in str(result.stopped)
    for image in files.all_crash_images():
        for number, place in enumerate(result.moved):
            check_readable(image, number, result.moved[place])


def test_a_failed_fsync_moves_nothing() -> None:
    files, places = written(3)
    files.fail("sync", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        compacted(files, places)


def test_the_rate_bounds_reading_and_writing_together() -> None:
    # Given a clock that only pauses advance, and a slow phase after the tenth blob
    files, places = written(40)
    clock = ManualClock()
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds + (100 if len(pauses) == 10 else 0))

    # When blobs are copied at 10,000 bytes a second
    writer = writer_of(files, first=100)
    result = compact(places, SegmentReader(files, SEED), writer, 10_000, clock=clock, pause=pause)

    # Then each blob took its time, and the slow phase was not made up for
    least = 2 * result.copied_bytes / 10_000
    assert len(result.moved) == 40
    assert clock.monotonic() - 100 == pytest.approx(least, abs=0.15)


def test_a_pause_can_abandon_it() -> None:
    files, places = written(3)

    def stop(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(places, SegmentReader(files, SEED), writer_of(files, first=9), 10, pause=stop)
    for number, place in enumerate(places):
        check_readable(files, number, place)
