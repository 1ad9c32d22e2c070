"""The journal writes what it admits, and refuses in advance what does not fit."""

from __future__ import annotations

import errno
import os

import pytest

from headwater.common.limits import MAX_RECORD_GROUP_BYTES
from headwater.errors import StoreUnusable
from headwater.journal.format.records import GROUP_HEADER_BYTES
from headwater.journal.log.journal import Journal
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import fact, facts_in, open_journal, turn_of, write_turn

FILE_BYTES = 1024
WHOLE_FILE = FILE_BYTES - 64 - 2 * 41
"""Bytes of groups that fit in one file."""


@pytest.fixture
def files() -> CrashableFiles:
    return CrashableFiles()


@pytest.fixture
def journal(files: CrashableFiles) -> Journal:
    return open_journal(files, file_bytes=FILE_BYTES)[0]


# --- what fits ----------------------------------------------------------------------------------


def test_committed_turns_are_recovered(files: CrashableFiles, journal: Journal) -> None:
    write_turn(journal, "one", "two", turn=1)
    write_turn(journal, "three", turn=5)
    journal.close()
    again, facts = open_journal(files)
    assert facts == [fact("one"), fact("two"), fact("three")]
    assert (again.recovery.last_turn, again.recovery.last_now_ms) == (5, 1_000_005)
    assert again.recovery.clean


def test_every_admitted_turn_is_written_whatever_the_size_of_its_groups() -> None:
    """Groups do not span files, so the sum of what two files have left is not what fits."""
    taken = 0
    for first in range(0, WHOLE_FILE - GROUP_HEADER_BYTES, 97):
        for size in (1, 30, 200, 430, WHOLE_FILE - GROUP_HEADER_BYTES - 1):
            for many in range(1, 2 * WHOLE_FILE // (GROUP_HEADER_BYTES + 1 + size) + 1):
                # Given a partly full file, the next one, and no space for another
                files = CrashableFiles()
                journal, _ = open_journal(files, file_bytes=FILE_BYTES)
                write_turn(journal, b"f" * first, turn=1)
                files.capacity = files.used_bytes()
                # When a turn of equal groups is admitted
                buffer = turn_of(journal, [fact(b"g" * size)] * many, turn=2)
                if journal.admits(len(buffer)) is None:
                    # Then it is written
                    journal.commit(buffer)
                    journal.close()
                    assert len(facts_in(files)[0]) == 1 + many
                    taken += 1
    assert taken > 100


def test_a_turn_far_larger_than_a_file_is_written(files: CrashableFiles, journal: Journal) -> None:
    texts = [b"%d" % number * 100 for number in range(200)]
    write_turn(journal, *texts, turn=1)
    journal.close()
    assert facts_in(files)[0] == [fact(text) for text in texts]


def test_a_first_group_larger_than_a_file_leaves_the_first_file_empty(
    files: CrashableFiles, journal: Journal
) -> None:
    write_turn(journal, b"x" * 5000, turn=1)
    facts, recovery = facts_in(files)
    assert facts == [fact(b"x" * 5000)]
    assert recovery.current.name == "journal-000002"


def test_a_growing_turn_does_not_create_a_file_for_each_command(
    files: CrashableFiles, journal: Journal
) -> None:
    for nbytes in range(100, 3 * FILE_BYTES, 10):
        assert journal.admits(nbytes) is None
    assert sum(line.startswith("create journal") for line in files.transcript) == 2 + 3


def test_a_group_above_the_limit_is_refused(journal: Journal) -> None:
    reason = journal.admits(MAX_RECORD_GROUP_BYTES + 1)
    assert reason is not None
    assert str(MAX_RECORD_GROUP_BYTES) in reason


def test_statistics_describe_what_was_written(files: CrashableFiles, journal: Journal) -> None:
    write_turn(journal, b"x" * 500, turn=1)
    write_turn(journal, b"x" * 500, turn=2)
    statistics = journal.statistics()
    assert statistics.current_bytes == 2 * (64 + 41 + GROUP_HEADER_BYTES + 501)
    assert statistics.base_bytes == 64
    assert (statistics.files, statistics.fsyncs, statistics.delayed_fsyncs) == (2, 2, 0)
    assert (statistics.failure, statistics.refusal) == (None, None)
    journal.close()
    again, _ = open_journal(files, file_bytes=FILE_BYTES)
    assert again.statistics().base_bytes == statistics.current_bytes + 41


# --- a full disk --------------------------------------------------------------------------------


def test_a_full_disk_refuses_writes_until_space_returns() -> None:
    # Given a disk with space for two files, of which the second is in use, and for the next image
    files = CrashableFiles(capacity=3 * FILE_BYTES + 300)
    journal, _ = open_journal(files, file_bytes=FILE_BYTES)
    turn = 0
    reason = None
    while reason is None:
        turn += 1
        write_turn(journal, b"x" * 100, turn=turn)
        reason = journal.admits(125)
    # Then what does not fit is refused with the reason, each time
    free = files.free_bytes()
    assert "1024 bytes are needed for the next file, " in reason
    assert f" for the next image, and {free} are free" in reason
    assert journal.admits(125) == reason
    assert journal.statistics().refusal == reason
    # And what fits is still written
    write_turn(journal, b"y", turn=turn + 1)
    # When space returns
    files.capacity = None
    # Then that is known before a write, and the next write succeeds
    assert journal.statistics().refusal is None
    write_turn(journal, b"z" * 100, turn=turn + 2)
    assert journal.statistics().refusal is None
    journal.close()
    found = facts_in(files)[0]
    assert found == [fact(b"x" * 100)] * turn + [fact("y"), fact(b"z" * 100)]


def test_a_full_disk_that_refuses_only_large_turns_is_said_to_refuse() -> None:
    # Given a disk with space for two files of 128 KB
    size = 128 * 1024
    files = CrashableFiles(capacity=3 * size)
    journal, _ = open_journal(files, file_bytes=size)
    # When a turn that needs a larger file is refused, also after a smaller attempt
    reason = journal.admits(2 * size)
    assert reason is not None
    assert journal.admits(100_000) is None
    # Then that is said while it would be refused again, although usual turns are accepted
    assert journal.statistics().refusal == reason
    files.capacity = None
    assert journal.statistics().refusal is None
    assert journal.admits(2 * size) is None
    journal.close()


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failure_to_create_a_file_is_a_refusal_whichever_step_fails(
    files: CrashableFiles, journal: Journal, operation: str, number: int
) -> None:
    write_turn(journal, "before", turn=1)
    files.fail(operation, error=number)
    reason = journal.admits(2000)
    assert reason is not None
    assert os.strerror(number) in reason
    assert files.names() == ["MANIFEST", "journal-000001", "journal-000002"]
    write_turn(journal, b"x" * 2000, turn=2)
    assert facts_in(files)[0] == [fact("before"), fact(b"x" * 2000)]


def test_a_file_whose_name_may_not_be_durable_is_not_written(
    files: CrashableFiles, journal: Journal
) -> None:
    # Given a larger next file whose name did not become durable
    write_turn(journal, "before", turn=1)
    files.fail("sync_directory")
    assert journal.admits(2000) is not None
    # Then no file is created or used until a restart, because a second fsync proves nothing
    reason = journal.admits(2000)
    assert reason is not None
    assert "until a restart" in reason
    assert journal.admits(WHOLE_FILE) is not None
    # But what fits into the current file is written
    write_turn(journal, "after", turn=2)
    journal.close()
    # And after a restart writes work again
    again, facts = open_journal(files, file_bytes=FILE_BYTES)
    assert facts == [fact("before"), fact("after")]
    write_turn(again, b"x" * 2000, turn=3)


def test_a_store_starts_on_a_full_disk_and_can_be_read() -> None:
    files = CrashableFiles()
    journal, _ = open_journal(files, file_bytes=FILE_BYTES)
    write_turn(journal, "one", turn=1)
    journal.close()
    # Given a current file that was cut after the record of its clean stop, and no free space
    end = journal._writer.end
    files.cut("journal-000001", end)
    files.capacity = 0
    # When the store starts
    journal, facts = open_journal(files, file_bytes=FILE_BYTES)
    # Then its facts are there, and the next file, whose space is allocated, is written
    assert facts == [fact("one")]
    assert journal.recovery.notes == [
        (
            f"memory:/journal-000001 has {end} bytes and was created with 1024: its last record says that "
            "it ends there, as after a clean stop; what may have followed is unknown"
        )
    ]
    write_turn(journal, "two", turn=2)
    assert journal.statistics().files == 2
    journal.close()
    assert facts_in(files)[0] == [fact("one"), fact("two")]


def test_opening_a_new_store_on_a_full_disk_is_an_error() -> None:
    with pytest.raises(StoreUnusable, match=r"no journal can be created .* 10 are free"):
        open_journal(CrashableFiles(capacity=10), file_bytes=FILE_BYTES)
