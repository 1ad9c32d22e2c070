"""A checkpoint that fails costs nothing but time: the store goes on, and the next one is written."""

from __future__ import annotations

import errno
import random

import pytest

from headwater.journal.format.manifest import ImageEntry
from headwater.journal.format.names import (
    file_name,
    image_name,
    image_numbers,
    past_name,
    past_numbers,
)
from headwater.journal.images.catalog import Catalog
from headwater.journal.images.images import ImageWriter
from headwater.journal.images.retention import image_number, read_all, read_pasts
from headwater.persistence.building import write_image
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure, Simple

MIB = 1024 * 1024


def info_of(store: LocalStore, name: str) -> str:
    """Return a field of INFO persistence."""
    found = store.client()("INFO", "persistence")
    assert isinstance(found, bytes)
    lines = dict(line.split(":", 1) for line in found.decode().splitlines() if ":" in line)
    return lines[name]


def full(store: LocalStore, *, free: int = 0) -> None:
    """Leave this much of the disk free."""
    assert store.files is not None
    store.files.capacity = store.files.used_bytes() + free


def test_the_server_goes_on_after_a_thousand_failures_in_a_row() -> None:
    # Given a disk without space for an image
    store = LocalStore()
    client = store.client()
    client("SET", "key", "value")
    full(store, free=-3 * MIB)
    # When more checkpoints fail than a float has powers of two
    for _ in range(1100):
        client("BGREWRITEAOF")
    # Then the store works, and the first one for which there is space succeeds
    assert info_of(store, "aof_last_bgrewrite_status") == "err"
    assert client("GET", "key") == b"value"
    full(store, free=16 * MIB)
    client("BGREWRITEAOF")
    assert info_of(store, "aof_last_bgrewrite_status") == "ok"


@pytest.mark.parametrize("error", [AssertionError("a bug"), MemoryError()], ids=repr)
def test_an_internal_error_while_an_image_is_written_costs_only_the_image(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    # Given a store whose image cannot be written because of a mistake in Headwater, or for want of memory
    store = LocalStore()
    client = store.client()
    client("SET", "key", "value")
    assert store.files is not None
    with monkeypatch.context() as patches:

        def fail(_writer: ImageWriter, _facts: bytearray) -> None:
            raise error

        patches.setattr(ImageWriter, "write", fail)
        # When a checkpoint is requested, and when the store stops
        client("BGREWRITEAOF")
        # Then the checkpoint has failed, the log has the traceback, nothing of the image is left, and the store goes on
        assert info_of(store, "aof_last_bgrewrite_status") == "err"
        assert f"no image was written: {error!r}" in caplog.text
        assert any(
            one.exc_info and one.exc_info[1] is error for one in caplog.records
        )  # with its traceback
        assert image_numbers(store.files, unfinished=True) == []
        assert client("SET", "key", "newer") == Simple(b"OK")
        store.node.close()
    # And the journal has everything
    store.crash()
    assert store.client()("GET", "key") == b"newer"


def test_an_internal_error_after_an_image_is_complete_leaves_no_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a store that cannot note its new image because of a mistake in Headwater
    store = LocalStore()
    client = store.client()
    client("SET", "key", "value")
    assert store.files is not None
    with monkeypatch.context() as patches:

        def fail(_catalog: Catalog, _entry: ImageEntry, _first: int) -> None:
            raise AssertionError("a bug")

        patches.setattr(Catalog, "use_image", fail)
        # When a checkpoint is requested
        client("BGREWRITEAOF")
    # Then it has failed, and the image is removed
    assert info_of(store, "aof_last_bgrewrite_status") == "err"
    assert image_numbers(store.files, unfinished=True) == []
    # And the next one succeeds
    client("BGREWRITEAOF")
    assert info_of(store, "aof_last_bgrewrite_status") == "ok"


def test_a_write_that_does_not_fit_after_a_rotation_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a journal file with space for a large write, and a disk without space for another such file
    monkeypatch.setattr("headwater.testing.node._FILE_BYTES", 64 * MIB)
    store = LocalStore()
    client = store.client()
    client("SET", "key", "x" * 2 * MIB)
    full(store, free=3 * MIB)
    client("SET", "key", "x" * 2 * MIB)
    # When a rotation continues in a smaller file, and no image can be written
    assert store.files is not None
    store.files.fail("create", passes=2)
    client("BGREWRITEAOF")
    assert info_of(store, "aof_last_bgrewrite_status") == "err"
    full(store)
    # Then such a write is refused before anything changes, and the store goes on
    client.send("SET", "key", "y" * 5 * MIB)
    reply = client.reply()
    assert isinstance(reply, Failure)
    assert reply.text.startswith(b"MISCONF")
    assert client("STRLEN", "key") == 2 * MIB


def test_a_disk_full_of_entries_can_be_emptied() -> None:
    # Given a disk that incompressible entries fill, in the journal, in segments and in an image
    store = LocalStore(cold=True)
    client, chance = store.client(), random.Random(1)
    full(store, free=48 * MIB)
    refused = 0
    while refused < 3:
        reply = client("XADD", "s", "*", "text", chance.randbytes(200_000))
        refused += isinstance(reply, Failure)
    # When everything is deleted, at the latest after a checkpoint
    client("BGREWRITEAOF")
    assert client("DEL", "s") == 1
    client("BGREWRITEAOF")
    client("BGREWRITEAOF")
    # Then there is space again
    assert store.files is not None
    assert store.files.free_bytes() > 32 * MIB
    assert not isinstance(client("XADD", "s", "*", "text", "x" * MIB), Failure)


@pytest.mark.slow
@pytest.mark.parametrize("cold", [False, True], ids=["journal", "segments"])
def test_a_disk_too_small_for_its_retention_keeps_the_newest_of_it_and_refuses_nothing(
    caplog: pytest.LogCaptureFixture, cold: bool
) -> None:
    # Given a store that keeps what images replace for a day, on a disk for a part of that
    store = LocalStore(cold=cold)
    client, chance = store.client(), random.Random(1)
    client("CONFIG", "SET", "journal-retention", "86400")
    full(store, free=96 * MIB)
    for number in range(600):
        # When a stream with a limit is written, with a checkpoint now and then, then no write is refused
        reply = client("XADD", "s", "MAXLEN", 20, "*", "text", chance.randbytes(400_000))
        assert not isinstance(reply, Failure)
        if number % 30 == 0:
            store.advance(60)
            client("BGREWRITEAOF")
            assert info_of(store, "aof_last_bgrewrite_status") == "ok"
    # because the oldest is removed, which is logged, and the newest stays
    assert "journal-retention asks for more than there is space for" in caplog.text
    assert store.files is not None
    kept = past_numbers(store.files)
    assert kept
    assert kept[-1] - kept[0] == len(kept) - 1


def test_want_of_space_removes_no_image_that_is_about_to_be_used() -> None:
    # Given a store with two pasts, and its next image, which is complete, and which MANIFEST does not name yet
    store = LocalStore()
    client = store.client()
    client("CONFIG", "SET", "journal-retention", "86400")
    for value in range(3):
        client("SET", "key", value)
        client("BGREWRITEAOF")
    client("SET", "key", "newest")
    journal = store.node.services.records.journal
    assert store.files is not None
    assert journal is not None
    assert len(past_numbers(store.files)) == 3
    rotation = journal.rotate()
    entry = write_image(store.files, store.node.keyspace, rotation, journal.seed)
    # When another thread needs more space than there is
    journal.catalog.make_room(1 << 61)
    # Then the pasts are removed, and not this image
    assert past_numbers(store.files) == []
    assert image_numbers(store.files) == [entry.number - 1, entry.number]
    journal.use_image(rotation, entry)
    journal.remove_replaced()
    store.crash()
    assert store.client()("GET", "key") == b"newest"


def without_their_files(store: LocalStore) -> list[int]:
    """Return the pasts that lack a file."""
    assert store.files is not None
    readable = read_all(store.files)
    return [image_number(one) for one in read_pasts(store.files) if one not in readable]


def keeping_pasts(seconds: int, images: int) -> LocalStore:
    """Return a store that keeps what images replace for this long, and that has written some, a minute apart."""
    store = LocalStore()
    client = store.client()
    client("CONFIG", "SET", "journal-retention", seconds)
    for value in range(images):
        client("SET", "key", value)
        client("BGREWRITEAOF")
        store.advance(60)
    return store


def refuse_removal(store: LocalStore, name: str, *, times: int) -> None:
    """Let the removal of this file fail."""
    files = store.files
    assert files is not None
    left = times

    def fail(line: str) -> None:
        nonlocal left
        if line == f"remove {name}" and left:
            left -= 1
            files.fail("any", error=errno.EIO)

    files.on_operation = fail


def test_a_past_that_could_not_be_removed_keeps_its_files_until_the_next_checkpoint() -> None:
    # Given a store with pasts that are too old, and a disk that refuses once to remove one of them
    store = keeping_pasts(200, 3)
    assert store.files is not None
    oldest = past_numbers(store.files)[0]
    refuse_removal(store, past_name(oldest), times=1)
    # When a checkpoint wants to remove them
    store.advance(1000)
    store.client()("SET", "key", "newest")
    store.client()("BGREWRITEAOF")
    # Then the past that is still there can be read, also by the next start
    assert past_numbers(store.files)[0] == oldest
    assert without_their_files(store) == []
    store.crash()
    assert without_their_files(store) == []
    assert store.client()("GET", "key") == b"newest"
    # And the next checkpoint removes it, with its files
    store.client()("BGREWRITEAOF")
    assert oldest not in past_numbers(store.files)
    assert without_their_files(store) == []


def test_a_past_that_cannot_be_removed_ends_the_search_for_space() -> None:
    # Given a store whose oldest past cannot be removed
    store = keeping_pasts(86_400, 3)
    assert store.files is not None
    before = past_numbers(store.files)
    refuse_removal(store, past_name(before[0]), times=1_000_000)
    journal = store.node.services.records.journal
    assert journal is not None
    # When there is too little space
    free = journal.catalog.make_room(1 << 61)
    # Then the search ends, and what is left can be read
    assert free < 1 << 61
    assert past_numbers(store.files) == before
    assert without_their_files(store) == []


@pytest.mark.parametrize(
    ("name", "readable"), [(file_name(2), [2]), (image_name(1), [0, 2])], ids=["journal", "image"]
)
def test_a_past_whose_files_are_not_all_there_is_not_read_and_nothing_else_is_removed(
    caplog: pytest.LogCaptureFixture, name: str, readable: list[int]
) -> None:
    # Given a store that lacks a file that a past needs
    store = keeping_pasts(86_400, 3)
    assert store.files is not None
    store.files.remove(name)
    before = {one for one in store.files.names() if one.startswith(("image", "journal"))}
    # When it starts again
    store.crash()
    # Then it has everything, and reads only the other pasts, and says so
    assert store.client()("GET", "key") == b"2"
    assert [image_number(one) for one in read_all(store.files)[:-1]] == readable
    assert f"manifest-000001 is ignored: {name} is missing" in caplog.text
    # And what is there may be of use
    assert before <= {*store.files.names()}


def test_a_past_with_a_damaged_manifest_takes_no_other_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a store with a damaged file that says what a past begins with
    store = keeping_pasts(86_400, 3)
    assert store.files is not None
    store.files.corrupt(past_name(1), 10, b"?")
    # When it starts again, and writes another image
    store.crash()
    client = store.client()
    client("CONFIG", "SET", "journal-retention", 86_400)
    client("SET", "key", "newest")
    client("BGREWRITEAOF")
    # Then only the damaged past is gone, and the log says so
    assert [image_number(one) for one in read_all(store.files)] == [0, 2, 3, 4]
    assert without_their_files(store) == []
    assert "manifest-000001 is ignored: memory:/manifest-000001 is damaged" in caplog.text


def test_a_checkpoint_that_is_to_make_room_is_tried_again() -> None:
    # Given a full disk, and a checkpoint that fails
    store = LocalStore()
    client = store.client()
    client("SET", "key", "x" * MIB)
    full(store)
    assert store.files is not None
    store.files.fail("create", times=100)
    while not isinstance(client("SET", "key", "x" * MIB), Failure):
        pass
    assert info_of(store, "aof_last_bgrewrite_status") == "err"
    # When it is possible again, and time passes
    store.files._faults.clear()
    full(store, free=8 * MIB)
    store.advance(60)
    client("PING")
    # Then it was written, although no write was tried
    assert info_of(store, "aof_last_bgrewrite_status") == "ok"
    assert client("SET", "key", "y") is not None


def test_after_a_checkpoint_has_made_room_reads_begin_none() -> None:
    # Given a full disk whose checkpoint has made room
    store = LocalStore()
    client = store.client()
    full(store, free=6 * MIB)
    while not isinstance(client("SET", "key", "x" * MIB), Failure):
        pass
    saves = info_of(store, "rdb_saves")
    assert saves != "0"
    # When clients only read, then no other one begins
    for _ in range(10):
        store.advance(60)
        client("GET", "key")
    assert info_of(store, "rdb_saves") == saves
