"""The last byte of a file that is not zero is found, and allocated space that was never written is not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.journal.disk import system
from headwater.journal.disk.system import allocate, used_bytes

MIB = 1024 * 1024
SIZE = 8 * MIB


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets that are read."""
    offsets: list[int] = []
    preadv = os.preadv

    def recorded(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        offsets.append(offset)
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", recorded)
    return offsets


def on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    """Make the system say that ``tmp_path`` is on a file system of this type."""
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text(f"27 1 {os.major(device)}:{os.minor(device)} / /a rw - {kind} /dev/vda rw\n")
    monkeypatch.setattr(system, "_MOUNTS", mounts)


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("kind", ["ext4", "tmpfs", "zfs"])
def test_what_was_written_is_found_before_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, kind: str, synced: bool
) -> None:
    # Given an allocated file with a few bytes in its middle, on a disk or only in memory
    on(monkeypatch, tmp_path, kind)
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    allocate(descriptor, SIZE)
    os.pwrite(descriptor, b"abc", 3 * MIB + 5)
    if synced:
        os.fsync(descriptor)

    # When its end is looked for
    found = used_bytes(descriptor, SIZE)

    # Then it is found
    os.close(descriptor)
    assert found == 3 * MIB + 8


def test_space_that_was_never_written_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[int]
) -> None:
    # Given an allocated file with a few bytes at its beginning
    on(monkeypatch, tmp_path, "ext4")
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    allocate(descriptor, SIZE)
    os.pwrite(descriptor, b"abc", 0)

    # When its end is looked for
    found = used_bytes(descriptor, SIZE)

    # Then only its beginning has been read
    os.close(descriptor)
    assert found == 3
    assert reads == [0]


def test_on_other_file_systems_all_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[int]
) -> None:
    # Given an allocated file on a file system that may take for a hole what it has not written yet
    on(monkeypatch, tmp_path, "zfs")
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    allocate(descriptor, SIZE)

    # When its end is looked for
    found = used_bytes(descriptor, SIZE)

    # Then everything has been read
    os.close(descriptor)
    assert found == 0
    assert sorted(reads) == list(range(0, SIZE, 64 * 1024))


def test_a_file_with_many_holes_is_searched_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[int]
) -> None:
    # Given a sparse file, the last pages of which are zeros that were written
    on(monkeypatch, tmp_path, "ext4")
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(descriptor, SIZE)
    for place in range(0, SIZE, MIB):
        os.pwrite(descriptor, bytes(4096) if place > 4 * MIB else b"abc", place)

    # When its end is looked for
    found = used_bytes(descriptor, SIZE)

    # Then it is found, and no hole was read
    os.close(descriptor)
    assert found == 4 * MIB + 3
    assert reads == [7 * MIB, 6 * MIB, 5 * MIB, 4 * MIB]
