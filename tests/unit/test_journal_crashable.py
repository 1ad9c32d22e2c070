"""The in-memory files lose in a crash what a disk may lose, and nothing else."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from headwater.testing.files import SECTOR_BYTES, CrashableFiles


def made(*, size: int = 8, seed: int = 0) -> CrashableFiles:
    """Create a directory with one durable file ``a`` of zeros."""
    files = CrashableFiles(seed=seed)
    files.create("a", size)
    files.sync("a")
    files.sync_directory()
    return files


def contents(files: CrashableFiles) -> set[bytes]:
    return {bytes(image.read("a")) for image in files.all_crash_images()}


def test_synced_bytes_survive() -> None:
    files = made()
    files.write("a", 2, b"abc")
    files.sync("a")
    assert contents(files) == {b"\0\0abc\0\0\0"}


def test_unsynced_bytes_may_be_torn_at_any_byte() -> None:
    files = made(size=3)
    files.write("a", 0, b"abc")
    assert contents(files) == {b"\0\0\0", b"a\0\0", b"ab\0", b"abc", b"\0bc", b"\0\0c"}


def test_writes_since_a_sync_may_reach_the_disk_in_any_order() -> None:
    files = made(size=2)
    files.write("a", 0, b"x")
    files.write("a", 1, b"y")
    assert contents(files) == {b"\0\0", b"x\0", b"\0y", b"xy"}


def test_a_sync_makes_nothing_of_another_file_durable() -> None:
    files = made(size=1)
    files.create("b", 1)
    files.sync_directory()
    files.write("a", 0, b"x")
    files.sync("b")
    assert b"\0" in contents(files)


def test_a_new_file_may_be_lost_until_its_directory_is_synced() -> None:
    files = made()
    files.create("b", 4)
    files.sync("b")
    assert {tuple(image.names()) for image in files.all_crash_images()} == {("a",), ("a", "b")}
    files.sync_directory()
    assert {tuple(image.names()) for image in files.all_crash_images()} == {("a", "b")}


def test_a_new_file_may_be_shorter_than_allocated() -> None:
    files = CrashableFiles()
    files.create("a", 4)
    files.sync_directory()
    assert contents(files) == {b"", b"\0\0\0\0"}


def test_a_rename_may_be_lost() -> None:
    files = made(size=1)
    files.write("a", 0, b"1")
    files.sync("a")
    files.create("b", 1)
    files.sync("b")
    files.sync_directory()
    files.rename("b", "a")
    assert contents(files) == {b"\0", b"1"}
    assert {tuple(image.names()) for image in files.all_crash_images()} == {("a", "b"), ("a",)}


def test_a_removed_file_may_still_be_there() -> None:
    files = made()
    files.remove("a")
    assert {tuple(image.names()) for image in files.all_crash_images()} == {(), ("a",)}


def test_random_crashes_include_every_kind_of_loss() -> None:
    # Given a write over several sectors
    files = made(size=3 * SECTOR_BYTES)
    files.write("a", 10, b"x" * 2 * SECTOR_BYTES)
    # When many random crashes are simulated
    images = list(files.crash_images(seed=1, count=300))
    found = {bytes(image.read("a")) for image in images}
    # Then some have all of it, none of it, a first part, a last part or a sector in the middle
    whole, none = bytes(files.read("a")), bytes(3 * SECTOR_BYTES)
    assert {whole, none} <= found
    assert any(image[10:20] == b"x" * 10 and image not in whole for image in found)
    sector = slice(SECTOR_BYTES, 2 * SECTOR_BYTES)
    assert any(image[sector] == b"x" * SECTOR_BYTES and image[10] == 0 for image in found)
    # And the same seed gives the same crashes
    again = [bytes(image.read("a")) for image in files.crash_images(seed=1, count=300)]
    assert [bytes(image.read("a")) for image in images] == again


def test_bytes_are_readable_but_not_durable_after_a_failed_sync() -> None:
    # Given a write whose sync failed
    for seed in range(20):
        files = made(size=4, seed=seed)
        files.write("a", 0, b"lost")
        files.fail("sync")
        with pytest.raises(OSError, match="Input/output"):
            files.sync("a")
        # When it is synced again, successfully
        files.sync("a")
        # Then it can be read, and what survives a crash was decided when the first sync failed
        assert bytes(files.read("a")) == b"lost"
        assert len(contents(files)) == 1
        if b"lost" not in contents(files):
            return
    pytest.fail("no failed sync has lost anything")


def test_bytes_written_again_after_a_failed_sync_can_become_durable() -> None:
    files = made(size=4)
    files.write("a", 0, b"lost")
    files.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        files.sync("a")
    files.write("a", 0, b"lost")
    files.sync("a")
    assert contents(files) == {b"lost"}


def test_a_failed_sync_of_the_directory_is_not_repaired_by_another() -> None:
    kept = set()
    for seed in range(20):
        files = made(seed=seed)
        files.create("b", 1)
        files.fail("sync_directory")
        with pytest.raises(OSError, match="Input/output"):
            files.sync_directory()
        files.sync_directory()
        kept |= {tuple(image.names()) for image in files.all_crash_images()}
    assert kept == {("a",), ("a", "b")}


def test_a_chosen_operation_fails_as_requested() -> None:
    files = made()
    files.fail("write", error=errno.ENOSPC, passes=1, times=2)
    files.write("a", 0, b"1")
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            files.write("a", 1, b"23")
    files.write("a", 3, b"4")
    assert bytes(files.read("a")) == b"12\x004\0\0\0\0"
    assert files.transcript[-4:] == [
        "write a at 0: 1 bytes",
        "write a at 1: 2 bytes fails with ENOSPC",
        "write a at 1: 2 bytes fails with ENOSPC",
        "write a at 3: 1 bytes",
    ]


def test_any_operation_can_be_the_one_that_fails() -> None:
    files = made()
    files.fail("any", passes=1)
    files.write("a", 0, b"1")
    with pytest.raises(OSError, match="Input/output"):
        files.rename("a", "b")
    assert files.names() == ["a"]


def test_a_full_directory_refuses_what_needs_space() -> None:
    files = CrashableFiles(capacity=10)
    files.create("a", 8)
    assert files.free_bytes() == 2
    refused: list[Callable[[], object]] = [
        lambda: files.create("b", 3),
        lambda: files.allocate("a", 11),
        lambda: files.write("a", 9, b"xy"),
    ]
    for operation in refused:
        with pytest.raises(OSError, match="No space"):
            operation()
    files.write("a", 0, b"12345678")
    files.remove("a")
    files.create("b", 10)


def test_injected_damage_is_durable() -> None:
    files = made(size=4)
    files.corrupt("a", 2, b"xyz")
    assert contents(files) == {b"\0\0xyz"}
    files.cut("a", 3)
    assert contents(files) == {b"\0\0x"}
