"""After a failed write or fsync the journal refuses every call and repeats nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from headwater.errors import NodePoisoned, StoreUnusable
from headwater.journal.disk.content import Content
from headwater.journal.log.journal import Journal
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import fact, facts_in, open_journal, turn_of, write_turn

FILE_BYTES = 1024


@pytest.fixture
def files() -> CrashableFiles:
    return CrashableFiles()


@pytest.fixture
def journal(files: CrashableFiles) -> Journal:
    return open_journal(files, file_bytes=FILE_BYTES)[0]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failure_after_execution_poisons_and_nothing_is_repeated(
    files: CrashableFiles, journal: Journal, operation: str
) -> None:
    # Given a turn whose write or fsync fails
    write_turn(journal, "durable", turn=1)
    files.fail(operation)
    with pytest.raises(NodePoisoned, match=r"journal-000001.*Input/output error.*restart"):
        write_turn(journal, "lost", turn=2)
    # Then every later call fails in the same way, and nothing accesses the disk
    files.transcript.clear()
    buffer = turn_of(journal, [fact("later")], turn=3)
    calls: list[Callable[[], object]] = [
        lambda: journal.commit(buffer),
        lambda: journal.commit(bytearray()),
        lambda: journal.admits(1),
        lambda: journal.set_policy("no"),
    ]
    for call in calls:
        with pytest.raises(NodePoisoned, match="Input/output error"):
            call()
    assert journal.failure == journal.statistics().failure
    journal.close()
    assert files.transcript == ["unlock"]
    # And after any crash the acknowledged turn is there
    for image in files.all_crash_images():
        assert facts_in(image)[0][:1] == [fact("durable")]


def test_a_restart_writes_again_what_a_failed_fsync_left_in_memory() -> None:
    """The bytes can be read and a new fsync succeeds, but they are not on the disk until they are
    written again."""
    for seed in range(10):
        files = CrashableFiles(seed=seed)
        journal, _ = open_journal(files, file_bytes=FILE_BYTES)
        write_turn(journal, "durable", turn=1)
        files.fail("sync")
        with pytest.raises(NodePoisoned):
            write_turn(journal, "in memory only", turn=2)
        journal.close()
        # When the store is started again without a crash of the system, then it has that turn
        again, facts = open_journal(files, file_bytes=FILE_BYTES)
        assert facts == [fact("durable"), fact("in memory only")]
        write_turn(again, "next", turn=3)
        # And the turn survives every later crash
        for image in files.all_crash_images():
            assert facts_in(image)[0] == [*facts, fact("next")]


def test_an_interruption_poisons(
    files: CrashableFiles, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "sync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_turn(journal, "one", turn=1)
    with pytest.raises(NodePoisoned, match="KeyboardInterrupt"):
        journal.admits(1)


def test_a_turn_number_that_decreases_is_not_written(journal: Journal) -> None:
    write_turn(journal, "one", turn=5)
    with pytest.raises(NodePoisoned, match="turn 4 after turn 5"):
        write_turn(journal, "two", turn=4)


def test_a_turn_that_was_not_admitted_and_does_not_fit_poisons() -> None:
    files = CrashableFiles(capacity=2 * FILE_BYTES)
    journal, _ = open_journal(files, file_bytes=FILE_BYTES)
    with pytest.raises(NodePoisoned, match="not admitted"):
        journal.commit(turn_of(journal, [b"\x20" * 5000], turn=1))


def test_a_failure_of_the_last_fsync_is_reported(files: CrashableFiles, journal: Journal) -> None:
    write_turn(journal, "one", turn=1)
    files.fail("sync")
    with pytest.raises(NodePoisoned):
        journal.close()
    assert files.transcript[-1] == "unlock"


def test_a_disk_that_cannot_be_read_is_reported(files: CrashableFiles, journal: Journal) -> None:
    journal.close()

    class Unreadable(CrashableFiles):
        bad = "read"

        def read(self, name: str, limit: int = -1, offset: int = 0) -> memoryview:
            if self.bad == "read":
                raise OSError(errno.EIO, "Input/output error")
            return super().read(name, limit, offset)

        def content(self, name: str) -> Content:
            if self.bad == "content":
                raise OSError(errno.EIO, "Input/output error")
            found = super().content(name)
            return Content(found.size, found.used, self.read_part)

        def read_part(self, _data: memoryview, _offset: int) -> int:
            raise OSError(errno.EIO, "Input/output error")

    broken = Unreadable()
    broken._names = files._names
    with pytest.raises(StoreUnusable, match="cannot be read"):
        open_journal(broken)
    for broken.bad in ("content", "part"):
        with pytest.raises(StoreUnusable, match="cannot be recovered"):
            open_journal(broken)
    assert not broken._locked
