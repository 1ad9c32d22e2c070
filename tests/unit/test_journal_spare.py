"""A spare with a damaged header is created again, with a note. A file that may hold records is not."""

from __future__ import annotations

import pytest

from headwater.journal.format.records import FILE_HEADER_BYTES, read_file_header
from tests.crash.journal_tools import (
    FIRST,
    MANIFEST,
    SECOND,
    SEED,
    Written,
    fact,
    facts_in,
    place,
    refused,
    write_turn,
)


@pytest.mark.parametrize(
    ("offset", "bytes_there"),
    [
        (0, bytes(FILE_HEADER_BYTES)),
        (0, bytes(32)),
        (32, bytes(32)),
        (10, b"\xff"),
        (0, b"\xff" * FILE_HEADER_BYTES),
    ],
)
def test_a_damaged_spare_is_created_again_with_a_note(offset: int, bytes_there: bytes) -> None:
    # Given a journal whose next file has lost its header, completely or in part
    written = Written(3)
    written.files.corrupt(SECOND, offset, bytes_there)
    # When the store is opened
    journal, facts = written.open()
    # Then it has all facts and a note, and the next file can be used
    assert facts == written.facts
    (note,) = journal.recovery.notes
    assert note.startswith(f"memory:/{SECOND}: its header cannot be read. It is the last file")
    header = read_file_header(written.files.content(SECOND).data)
    assert header == (2, SEED, 2, 4096)
    write_turn(journal, "x" * 3900, turn=4)
    assert journal._writer.name == SECOND
    assert facts_in(written.files)[0] == [*facts, fact("x" * 3900)]


def test_a_flipped_bit_in_a_spare_header_loses_nothing() -> None:
    whole = Written(1)
    content = bytes(whole.files.content(SECOND).data)
    for bit in range(FILE_HEADER_BYTES * 8):
        written = Written(1)
        written.files.corrupt(SECOND, bit // 8, bytes([content[bit // 8] ^ 1 << bit % 8]))
        journal, facts = written.open()
        assert facts == written.facts
        assert len(journal.recovery.notes) == 1


def test_a_damaged_spare_is_removed_before_another_is_created() -> None:
    """On a nearly full disk, the new one needs its space."""
    written = Written(3)
    written.files.corrupt(SECOND, 0, bytes(FILE_HEADER_BYTES))
    small_bytes = written.files.size(SECOND)  # what the small file of a rotation needs
    written.files.capacity = written.files.used_bytes() + small_bytes + 200
    written.open()
    assert read_file_header(written.files.content(SECOND).data) is not None


def test_a_damaged_spare_stays_where_no_manifest_can_be_written() -> None:
    """Without space for MANIFEST it cannot be removed: MANIFEST names it."""
    # Given a damaged spare on a full disk
    written = Written(3)
    written.files.corrupt(SECOND, 0, bytes(FILE_HEADER_BYTES))
    written.files.capacity = written.files.used_bytes()
    # When the store is opened
    journal, facts = written.open()
    # Then it has all facts, and the spare is created again when there is space
    assert facts == written.facts
    assert journal.admits(4096) is not None
    written.files.capacity = None
    write_turn(journal, "x" * 4000, turn=4)
    assert facts_in(written.files)[0] == [*facts, fact("x" * 4000)]


def test_a_crash_while_a_spare_is_created_again_loses_nothing() -> None:
    written = Written(3)
    written.files.corrupt(SECOND, 0, bytes(FILE_HEADER_BYTES))
    trials = 0

    def crash(_line: str) -> None:
        nonlocal trials
        for image in written.files.crash_images(seed=trials, count=5):
            assert facts_in(image)[0] == written.facts
            trials += 1

    written.files.on_operation = crash
    written.open()
    assert trials > 40


def test_a_first_file_without_a_header_is_damaged() -> None:
    """A first file is never a spare."""
    written = Written(0)
    written.files.remove(SECOND)
    written.files.remove(MANIFEST)
    written.files.corrupt(FIRST, 0, bytes(FILE_HEADER_BYTES))
    assert place(refused(written.files)) == (FIRST, 0)


def test_a_file_without_a_header_before_a_later_file_is_damaged() -> None:
    """The later file was created when this one was begun."""
    written = Written(15, policy="no", file_bytes=512)
    assert written.ends[-1][0] == SECOND
    written.files.corrupt(SECOND, 0, bytes(512))
    assert place(refused(written.files)) == (SECOND, 0)


def test_a_file_with_records_and_no_header_is_damaged() -> None:
    written = Written(15, policy="no", file_bytes=512)
    written.files.remove("journal-000003")
    written.files.remove(MANIFEST)
    written.files.corrupt(SECOND, 0, bytes(FILE_HEADER_BYTES))
    assert place(refused(written.files)) == (SECOND, 0)


@pytest.mark.parametrize("size", [0, 1, FILE_HEADER_BYTES - 1])
def test_a_file_shorter_than_a_header_is_damaged(size: int) -> None:
    """An incomplete copy looks like this, and the file may have held records."""
    written = Written(3)
    written.files.cut(SECOND, size)
    assert place(refused(written.files)) == (SECOND, 0)
