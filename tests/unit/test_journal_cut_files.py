"""A rotation cuts a journal file to its records. A crash may make it the last one again."""

from __future__ import annotations

import pytest

from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import fact, journal_names, open_journal, write_turn

FILE_BYTES = 512


def free_again(files: CrashableFiles) -> CrashableFiles:
    files._locked = False
    return files


def test_a_file_that_a_rotation_cut_is_written_again_after_a_crash() -> None:
    # Given a rotation that cut a file, and a crash before the next file got a record
    files = CrashableFiles()
    journal, _ = open_journal(files, file_bytes=FILE_BYTES)
    write_turn(journal, "one", turn=1)
    journal.rotate()
    cut = journal_names(files)[0]
    journal, facts = open_journal(free_again(files), policy="no", file_bytes=FILE_BYTES)
    assert facts == [fact("one")]
    assert files.size(cut) == FILE_BYTES
    # When more is written there, and another crash comes before the next fsync
    write_turn(journal, "two", turn=2)
    images = list(files.all_crash_images())
    # Then the next start finds what was durable, however much of the rest the disk has
    assert len(images) > 10
    for image in images:
        assert open_journal(image, file_bytes=FILE_BYTES)[1][:1] == [fact("one")]


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_file_that_a_rotation_cut_may_be_longer_than_its_records(size: int) -> None:
    # Given a file that a rotation cut, and a crash while its space was allocated again
    files = CrashableFiles()
    journal, _ = open_journal(files, file_bytes=FILE_BYTES)
    write_turn(journal, "one", turn=1)
    journal.rotate()
    name = journal_names(files)[0]
    files.allocate(name, files.size(name) + size)
    # When it is opened, then it has everything, and is whole
    assert open_journal(free_again(files), file_bytes=FILE_BYTES)[1] == [fact("one")]
    assert files.size(name) == FILE_BYTES
