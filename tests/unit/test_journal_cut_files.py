"""A rotation cuts a journal file to its records. A crash may make it the last one with records again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import fact, journal_names, open_journal, write_turn

FILE_BYTES = 512


def free_again(files: CrashableFiles) -> CrashableFiles:
    files._locked = False
    return files


def rotated() -> CrashableFiles:
    """Return the files of a journal that was rotated and has no record since."""
    files = CrashableFiles()
    journal, _ = open_journal(files, file_bytes=FILE_BYTES)
    write_turn(journal, "one", turn=1)
    journal.rotate()
    return files


def two_empty_files() -> CrashableFiles:
    """Return a journal whose last file with records is followed by two without: a crash took their
    records."""
    files = CrashableFiles()
    journal, _ = open_journal(files, policy="no", file_bytes=FILE_BYTES)
    turn = 0
    while len(journal_names(files)) < 3:
        turn += 1
        write_turn(journal, "x" * 100, turn=turn)
    journal_names(files)
    second = journal_names(files)[1]
    image = min(files.all_crash_images(), key=lambda one: one.content(second).used)
    assert len(journal_names(image)) == 3
    return image


@pytest.mark.parametrize("make", [CrashableFiles, two_empty_files])
def test_a_crash_after_a_rotation_leaves_nothing_unknown(
    make: Callable[[], CrashableFiles],
) -> None:
    # Given a rotation that cuts a file to its records; there are files after it or not
    files = make()
    journal, before = open_journal(files, file_bytes=FILE_BYTES)
    write_turn(journal, "one", turn=9)
    journal.rotate()
    assert files.size(journal_names(files)[0]) < FILE_BYTES
    # When a crash comes before the next file gets a record, or the store stops cleanly
    for stop in (False, True):
        if stop:
            journal.close()
        for image in files.all_crash_images():
            again, facts = open_journal(image, file_bytes=FILE_BYTES)
            # Then the next start has everything, and nothing to note
            assert facts == [*before, fact("one")]
            assert (again.recovery.notes, again.recovery.cuts) == ([], [])


def test_no_crash_during_a_rotation_leaves_anything_unknown() -> None:
    # Given a rotation that may crash before any of its operations
    files = CrashableFiles()
    journal, _ = open_journal(files, file_bytes=FILE_BYTES)
    write_turn(journal, "one", turn=1)
    images: list[CrashableFiles] = []
    files.on_operation = lambda _line: images.extend(files.all_crash_images())
    journal.rotate()
    files.on_operation = None
    # When it is opened, then it has everything, and nothing to note
    assert len(images) > 10
    for image in images:
        again, facts = open_journal(image, file_bytes=FILE_BYTES)
        assert facts == [fact("one")]
        assert again.recovery.notes == []


@pytest.mark.parametrize("ends", ["crash", "clean"])
def test_after_a_rotation_and_a_crash_the_journal_continues_in_the_next_file(ends: str) -> None:
    # Given a rotation, and a crash before the next file got a record
    files = rotated()
    cut = journal_names(files)[0]
    used = files.content(cut).used
    journal, facts = open_journal(free_again(files), policy="no", file_bytes=FILE_BYTES)
    assert facts == [fact("one")]
    # When the next start writes or not, and another crash comes, or a clean stop
    if ends == "crash":
        write_turn(journal, "two", turn=3)
    else:
        journal.close()
    # Then the next start finds what was durable, however much of the rest the disk has
    images = list(files.all_crash_images())
    assert len(images) > (10 if ends == "crash" else 0)
    for image in images:
        again, facts = open_journal(image, file_bytes=FILE_BYTES)
        assert facts[:1] == [fact("one")]
        assert again.recovery.notes == []
        # And the file that was cut is not written again
        assert image.content(cut).used == used


def test_a_file_that_is_cut_at_an_earlier_clean_stop_is_noted() -> None:
    # Given a store that was stopped cleanly, started and written again
    files = CrashableFiles()
    journal, _ = open_journal(files, file_bytes=FILE_BYTES)
    write_turn(journal, "one", turn=1)
    journal.close()
    end = journal._writer.end
    journal, _ = open_journal(free_again(files), file_bytes=FILE_BYTES)
    write_turn(journal, "two", turn=2)
    # When its file is cut where it was stopped
    files.cut(journal_names(files)[0], end)
    again, facts = open_journal(free_again(files), file_bytes=FILE_BYTES)
    # Then this is noted
    assert facts == [fact("one")]
    (note,) = again.recovery.notes
    assert note.endswith("what may have followed is unknown")
