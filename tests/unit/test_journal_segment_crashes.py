"""After a crash at any moment, every blob that was made durable is readable, and none is taken for another."""

from __future__ import annotations

import errno
from random import Random

import pytest

from headwater.engine.bodies.blobs import BlobPlace
from headwater.journal.segments.blobs import BlobDamaged
from headwater.journal.segments.segment_reader import SegmentReader
from headwater.journal.segments.segments import segment_name, segment_numbers
from headwater.testing.files import CrashableFiles
from tests.blobs import SEED, check_readable, parts_of, writer_of
from tests.segment_scan import scan_segment


class Campaign:
    """Appends random blobs, and checks what a crash before each operation leaves."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.files = CrashableFiles(seed=seed)
        self.files.on_operation = lambda _line: self.check()
        self.bodies: dict[int, int] = {}
        self.places: dict[int, BlobPlace] = {}
        self.durable: set[int] = set()
        self.images = 0

    def run(self, count: int) -> None:
        writer = writer_of(self.files, segment_bytes=self.random.choice((600, 3000, 100_000)))
        for number in range(count):
            self.bodies[number] = self.random.choice((0, 40, 700))
            parts = parts_of(number, body_bytes=self.bodies[number])
            self.places[number] = writer.append(*parts)
            if self.random.random() < 0.3:
                reported = set(self.places)
                writer.sync()
                self.durable |= reported
        writer.finish()
        self.durable = set(self.places)
        self.check()

    def check(self) -> None:
        for image in self.files.crash_images(seed=self.random.randrange(2**32), count=4):
            self.images += 1
            for number in self.durable:
                check_readable(image, number, self.places[number], body_bytes=self.bodies[number])
            for number in set(self.places) - self.durable:
                self.check_not_confused(image, number)
            self.check_scanned(image)

    def check_not_confused(self, image: CrashableFiles, number: int) -> None:
        """What was not durable is there as it was, or an error."""
        reader = SegmentReader(image, SEED)
        head, ids, body = parts_of(number, body_bytes=self.bodies[number])
        try:
            assert reader.head_and_ids(self.places[number]) == (head, ids)
        except BlobDamaged:
            pass
        try:
            assert reader.body(self.places[number]) == body
        except BlobDamaged:
            pass

    def check_scanned(self, image: CrashableFiles) -> None:
        """A search finds every durable blob, and nothing that was not written."""
        found = {
            place: head
            for number in segment_numbers(image)
            for head, place in scan_segment(image, segment_name(number), SEED)
        }
        assert {self.places[number] for number in self.durable} <= set(found)
        for head in found.values():
            assert head == parts_of(head.origin, body_bytes=self.bodies[head.origin])[0]


@pytest.mark.parametrize("seed", range(8))
def test_durable_blobs_survive_a_crash_before_every_operation(seed: int) -> None:
    campaign = Campaign(seed)
    campaign.run(25)
    assert campaign.images > 100


@pytest.mark.parametrize("seed", range(30))
def test_a_failure_of_any_operation_keeps_what_was_durable(seed: int) -> None:
    # Given a campaign in which one operation fails
    campaign = Campaign(seed)
    error = (errno.EIO, errno.ENOSPC)[seed % 2]
    campaign.files.fail("any", error=error, passes=seed)

    # When it runs
    with pytest.raises(OSError, match=r"Input/output|No space"):
        campaign.run(25)

    # Then what was durable before is durable after it
    campaign.check()


def test_every_image_of_a_crash_before_the_first_fsync_has_no_wrong_blob() -> None:
    # Given two blobs that were never synced
    files = CrashableFiles()
    writer = writer_of(files, segment_bytes=4096)
    places = [writer.append(*parts_of(number, body_bytes=3)) for number in range(2)]

    for image in files.all_crash_images():
        # When a crash leaves any part of them
        for number, place in enumerate(places):
            head, ids, body = parts_of(number, body_bytes=3)
            reader = SegmentReader(image, SEED)
            # Then what is readable is what was written
            try:
                assert reader.head_and_ids(place) == (head, ids)
            except BlobDamaged:
                pass
            try:
                assert reader.body(place) == body
            except BlobDamaged:
                pass


def test_a_file_of_an_earlier_attempt_is_not_confused_with_a_new_one() -> None:
    # Given a segment that was lost in a crash, while its bytes stayed on the disk
    old = CrashableFiles()
    lost = writer_of(old).append(*parts_of(1))
    data = old.part(segment_name(1), 0, lost.end)
    files = CrashableFiles()
    writer = writer_of(files, first=2)
    place = writer.append(*parts_of(2))
    writer.sync()

    # When these bytes appear behind the blobs of another segment
    files.corrupt(segment_name(2), place.end, data)

    # Then no blob is found there
    assert [found for _head, found in scan_segment(files, segment_name(2), SEED)] == [place]
