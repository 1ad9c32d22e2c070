"""Rotations, and images that replace journal files."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from pathlib import Path

import pytest

from headwater.common.limits import JOURNAL_FILE_BYTES
from headwater.errors import NodePoisoned, StoreUnusable
from headwater.journal.disk.files import DiskFiles
from headwater.journal.format.manifest import ImageEntry, read_manifest
from headwater.journal.format.records import read_file_header
from headwater.journal.images.rotation import Rotation
from headwater.journal.log.journal import Journal
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import (
    Written,
    bytes_of,
    fact,
    facts_at,
    facts_in,
    journal_names,
    open_journal,
    turn_of,
    write_image,
    write_turn,
)
from tests.descriptors import descriptors_left

FILE_BYTES = 512
MIB = 1024 * 1024


def checkpoint(journal: Journal) -> tuple[Rotation, ImageEntry]:
    """Rotate, and replace everything before by an image."""
    rotation = journal.rotate()
    entry = write_image(journal, rotation, facts_at(journal, rotation))
    journal.use_image(rotation, entry)
    journal.remove_replaced()
    return rotation, entry


def free_again(files: CrashableFiles) -> CrashableFiles:
    files._locked = False
    return files


def test_an_image_replaces_the_journal_files_before_it() -> None:
    # Given a journal of several files
    written = Written(40, file_bytes=FILE_BYTES)
    assert len(written.names()) > 4
    # When an image replaces them, and the journal is continued
    rotation, entry = checkpoint(written.journal)
    write_turn(written.journal, "later", turn=41)
    # Then only the image and the later files are left, and a start has everything
    first = f"journal-{rotation.first:06d}"
    assert written.names()[0] == first
    assert "image-000001" in written.files.names()
    assert written.journal.image == entry
    assert facts_in(written.files)[0] == [*written.facts, fact("later")]
    journal, facts = open_journal(free_again(written.files), file_bytes=FILE_BYTES)
    assert facts == [*written.facts, fact("later")]
    assert journal.image == entry
    assert journal.recovery.last_turn == 41


@pytest.mark.parametrize("used", [False, True])
def test_a_turn_that_exceeds_the_file_after_a_rotation_is_recovered(*, used: bool) -> None:
    # Given a journal that was rotated; its image is in use or not
    written = Written(5, file_bytes=FILE_BYTES)
    journal = written.journal
    rotation = checkpoint(journal)[0] if used else journal.rotate()
    # When the next turn does not fit into the new file, so that this one stays without a turn
    large = "x" * FILE_BYTES
    write_turn(journal, large, turn=6)
    write_turn(journal, "after", turn=7)
    # Then it is recovered, also with the image of that rotation or a later one
    everything = [*written.facts, fact(large), fact("after")]
    (image,) = written.files.crash_images(seed=0, count=1)
    assert facts_in(image)[0] == everything
    if not used:
        journal.use_image(rotation, write_image(journal, rotation, facts_at(journal, rotation)))
        journal.remove_replaced()
        (image,) = written.files.crash_images(seed=0, count=1)
        assert facts_in(image)[0] == everything
    checkpoint(journal)
    journal.close()
    assert open_journal(free_again(written.files), file_bytes=FILE_BYTES)[1] == everything


def test_a_second_image_replaces_the_first() -> None:
    written = Written(20, file_bytes=FILE_BYTES)
    _, first = checkpoint(written.journal)
    write_turn(written.journal, "between", turn=21)
    rotation, second = checkpoint(written.journal)
    assert (first.number, second.number) == (1, 2)
    assert rotation.turn == second.turn == 21
    assert [name for name in written.files.names() if name.startswith("image")] == ["image-000002"]
    expected = [*written.facts, fact("between")]
    assert open_journal(free_again(written.files), file_bytes=FILE_BYTES)[1] == expected


def test_a_rotation_without_a_turn_since_the_last_begins_no_file() -> None:
    written = Written(3)
    first = written.journal.rotate()
    assert (first.closed, first.end.number, first.first) == (1, 1, 2)
    again = written.journal.rotate()
    assert again == first
    written.journal.use_image(first, write_image(written.journal, first, written.facts))
    empty = written.journal.rotate()
    assert empty.closed > empty.end.number
    assert facts_at(written.journal, empty) == written.facts


def test_turns_between_the_rotation_and_its_image_are_kept() -> None:
    written = Written(3)
    rotation = written.journal.rotate()
    facts = facts_at(written.journal, rotation)
    for turn in range(4, 8):
        write_turn(written.journal, f"meanwhile {turn}", turn=turn)
    written.journal.use_image(rotation, write_image(written.journal, rotation, facts))
    meanwhile = [fact(f"meanwhile {turn}") for turn in range(4, 8)]
    assert open_journal(free_again(written.files))[1] == [*written.facts, *meanwhile]


def test_a_number_of_an_image_is_used_once() -> None:
    """Also that of one that was never finished, or never taken into use."""
    written = Written(3)
    written.files.create("image-000007.new", 10)
    assert written.journal.rotate().image == 8
    written.files.rename("image-000007.new", "image-000009")
    assert written.journal.rotate().image == 10
    rotation, _entry = checkpoint(written.journal)
    manifest = read_manifest(written.files)
    assert manifest is not None
    assert manifest.next_image == rotation.image + 1


def test_sizes_are_those_of_the_image_and_of_the_records_after_it() -> None:
    written = Written(40, file_bytes=FILE_BYTES)
    journal = written.journal
    before = journal.grown_bytes
    assert journal.total_bytes == before == journal.statistics().current_bytes
    _, entry = checkpoint(journal)
    assert (journal.grown_bytes, journal.total_bytes) == (64, entry.size + 64)
    assert journal.statistics().base_bytes == journal.total_bytes
    assert journal.statistics().files == 1
    write_turn(journal, "later", turn=41)
    assert journal.grown_bytes == 64 + 41 + 24 + len(fact("later"))
    again, _facts = open_journal(free_again(written.files), file_bytes=FILE_BYTES)
    assert again.grown_bytes == journal.grown_bytes


def test_a_rotation_makes_everything_durable() -> None:
    written = Written(3, policy="no")
    written.journal.rotate()
    for image in written.files.crash_images(seed=1, count=20):
        assert facts_in(image)[0] == written.facts


# --- what a crash or an error leaves ------------------------------------------------------------


def test_a_start_removes_what_a_crash_left() -> None:
    # Given files that MANIFEST does not name: older journal files and images, and unfinished ones
    written = Written(40, file_bytes=FILE_BYTES)
    older = bytes_of(written.files)
    checkpoint(written.journal)
    kept = set(written.files.names())
    for name in ("journal-000001", "journal-000002"):
        written.files.create(name, 0)
        written.files.corrupt(name, 0, older[name])
    for name in ("image-000005", "image-000006.new", "MANIFEST.new", "journal-000099.new"):
        written.files.create(name, 10)
    # When the store is started
    _journal, facts = open_journal(free_again(written.files), file_bytes=FILE_BYTES)
    # Then they are gone, and nothing else
    assert facts == written.facts
    assert set(written.files.names()) == kept


def test_a_damaged_store_keeps_what_manifest_does_not_name() -> None:
    """A user who has to choose a remedy needs every file."""
    written = Written(40, file_bytes=FILE_BYTES)
    _, entry = checkpoint(written.journal)
    written.files.create("image-000005", 10)
    written.files.corrupt("image-000001", entry.size - 10, b"\xff\xff")
    before = bytes_of(written.files)
    journal = Journal.open(free_again(written.files), policy="always")
    journal.close()
    assert bytes_of(written.files) == before


def test_files_that_cannot_be_removed_are_removed_by_the_next_start() -> None:
    written = Written(20, file_bytes=FILE_BYTES)
    written.files.fail("remove", times=100)
    checkpoint(written.journal)
    assert written.names()[0] == "journal-000001"
    written.files._faults.clear()
    journal, facts = open_journal(free_again(written.files), file_bytes=FILE_BYTES)
    assert facts == written.facts
    assert written.names()[0] == f"journal-{journal._writer.number:06d}"


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
def test_without_a_new_manifest_nothing_is_removed(operation: str) -> None:
    # Given a finished image
    written = Written(20, file_bytes=FILE_BYTES)
    rotation = written.journal.rotate()
    entry = write_image(written.journal, rotation, facts_at(written.journal, rotation))
    before = written.names()
    # When MANIFEST cannot be replaced
    written.files.fail(operation)
    with pytest.raises(OSError, match="Input/output"):
        written.journal.use_image(rotation, entry)
    # Then nothing is removed, and the journal is still written
    assert written.names() == before
    write_turn(written.journal, "later", turn=21)
    for image in (*written.files.crash_images(seed=1, count=10), free_again(written.files)):
        assert open_journal(image, file_bytes=FILE_BYTES)[1] == [*written.facts, fact("later")]


def test_an_image_that_is_not_used_is_removed() -> None:
    # Given an image in use, another one that was written, and an unfinished one
    files = CrashableFiles()
    journal, _ = open_journal(files, file_bytes=FILE_BYTES)
    write_turn(journal, "one", turn=1)
    used, _entry = checkpoint(journal)
    for name in ("image-000002", "image-000002.new"):
        files.create(name, 10)
    # When they are discarded, then the one in use stays
    for number in (used.image, 2):
        journal.catalog.discard_image(number)
    assert [name for name in files.names() if name.startswith("image")] == ["image-000001"]


def test_after_a_failed_fsync_of_the_directory_no_image_is_taken_into_use() -> None:
    written = Written(20, file_bytes=FILE_BYTES)
    rotation = written.journal.rotate()
    entry = write_image(written.journal, rotation, facts_at(written.journal, rotation))
    written.files.fail("sync_directory")
    with pytest.raises(OSError, match="Input/output"):
        written.journal.use_image(rotation, entry)
    before = written.files.names()
    with pytest.raises(OSError, match="until a restart"):
        written.journal.use_image(rotation, entry)
    assert written.files.names() == before


def test_a_rotation_without_space_for_another_file_changes_nothing() -> None:
    # Given a full disk, and a journal without a next file
    written = Written(4, file_bytes=FILE_BYTES)
    written.files.capacity = written.files.used_bytes()
    write_turn(written.journal, "x" * 150, turn=5)
    name = written.journal._writer.name
    # When it is rotated, then that is refused
    with pytest.raises(StoreUnusable, match=r"cannot continue .*512 bytes are needed .* are free"):
        written.journal.rotate()
    # And the journal is written as before
    assert written.journal._writer.name == name
    write_turn(written.journal, "y", turn=6)
    # And when there is space, it is rotated
    written.files.capacity = None
    assert written.journal.rotate().first == 3


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_of_a_rotation_poisons(operation: str) -> None:
    written = Written(3, policy="no")
    written.files.fail(operation)
    with pytest.raises(NodePoisoned):
        written.journal.rotate()
    with pytest.raises(NodePoisoned):
        written.journal.rotate()


@pytest.mark.parametrize("left", range(5))
def test_a_lack_of_descriptors_is_over_when_some_are_free_again(tmp_path: Path, left: int) -> None:
    # Given a journal that needs another file, in a process with few free descriptors
    journal, _ = open_journal(DiskFiles(tmp_path), file_bytes=FILE_BYTES)
    turn, refusal = 0, None
    with descriptors_left(left):
        # When it is written until that is refused
        while turn < 20 and refusal is None:
            turn += 1
            buffer = turn_of(journal, [fact("x" * 200)], turn=turn)
            refusal = journal.admits(len(buffer))
            if refusal is None:
                journal.commit(buffer)
    # Then every write is accepted as soon as descriptors are free
    assert refusal is None or "Too many open files" in refusal
    for later in range(turn, turn + 5):
        write_turn(journal, "y" * 200, turn=later)
    written = turn + 4 + (refusal is None)
    journal.close()
    # And nothing is lost
    journal, facts = open_journal(DiskFiles(tmp_path), file_bytes=FILE_BYTES)
    assert len(facts) == written
    journal.close()


def test_a_store_with_more_journal_files_than_free_descriptors_is_opened(tmp_path: Path) -> None:
    # Given a store with 100 journal files
    journal, _ = open_journal(DiskFiles(tmp_path), policy="no", file_bytes=FILE_BYTES)
    for turn in range(1, 101):
        write_turn(journal, "x" * 200, turn=turn)
    journal.close()
    assert len(journal_names(journal.files)) >= 100
    # When it is opened in a process that can open 80 files
    with descriptors_left(80):
        journal, facts = open_journal(DiskFiles(tmp_path), policy="no", file_bytes=FILE_BYTES)
    # Then it has everything
    assert len(facts) == 100
    journal.close()


# --- sizes --------------------------------------------------------------------------------------


def test_a_new_directory_is_small_and_files_double(tmp_path: Path) -> None:
    # Given a new directory
    files = CrashableFiles()
    journal, _ = open_journal(files)
    # Then it has two small files
    sizes = [len(content) for name, content in bytes_of(files).items() if name[:4] == "jour"]
    assert sizes == [2 * MIB, 4 * MIB]
    # And later files double up to the usual size
    for turn in range(1, 8):
        write_turn(journal, "x", turn=turn)
        journal.rotate()
    headers = [read_file_header(files.content(name).data) for name in journal_names(files)]
    sizes = [header.size for header in headers if header is not None]
    doubled = [2 * MIB << number for number in range(len(sizes))]
    assert sizes == [min(size, JOURNAL_FILE_BYTES) for size in doubled]
    # And a file that a rotation has closed takes only the space of its records
    assert files.used_bytes() < sum(sizes[-2:]) + MIB


# --- the lock of images -------------------------------------------------------------------------


def test_a_start_waits_for_the_process_that_writes_an_image(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a helper that writes an image
    helper = DiskFiles(tmp_path)
    helper.lock_images()
    waiting = threading.Event()

    class Waits(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if f"waiting for process {os.getpid()}, which writes an image" in record.getMessage():
                waiting.set()

    log, handler = logging.getLogger("headwater.journal"), Waits()
    log.addHandler(handler)
    # When a store is opened
    opened: list[Journal] = []

    def open_it() -> None:
        opened.append(open_journal(DiskFiles(tmp_path), file_bytes=FILE_BYTES)[0])

    thread = threading.Thread(target=open_it)
    with caplog.at_level(logging.WARNING, "headwater.journal"):
        thread.start()
        # Then the log names the helper
        assert waiting.wait(30)
    # And the store waits until the helper has ended
    assert opened == []
    assert not (tmp_path / "MANIFEST").exists()
    helper.unlock_images()
    thread.join(30)
    log.removeHandler(handler)
    assert (tmp_path / "MANIFEST").exists()
    # And it does not hold the lock itself
    descriptor = os.open(tmp_path / "checkpoint.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
    opened[0].close()
