"""Files are read at any position by any thread, with a bounded number of descriptors, and without waiting for
the disk if that is requested."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import ForkedStore, StoreUnusable
from headwater.journal.disk import reads as reads_module
from headwater.journal.disk import system
from headwater.journal.disk.files import DiskFiles, Files
from headwater.journal.disk.reads import DiskReads
from headwater.testing.files import CrashableFiles

plain = pytest.mark.skipif(
    not reads_module.__file__.endswith(".py"), reason="the compiled module calls the system itself"
)


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    made: Files = DiskFiles(tmp_path) if request.param == "disk" else CrashableFiles()
    made.lock()
    yield made
    made.unlock()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskFiles]:
    made = DiskFiles(tmp_path)
    made.lock()
    yield made
    made.unlock()


def open_in(directory: Path) -> list[str]:
    """Return the names of the files of a directory that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            path = descriptor.readlink()
        except FileNotFoundError:  # the descriptor of this listing
            continue
        if path.is_relative_to(directory):
            found.append(path.name)
    return sorted(found)


# --- both ---------------------------------------------------------------------------------------


def test_bytes_are_read_at_any_position(files: Files) -> None:
    # Given a file
    files.create("a", 10)
    files.write("a", 0, b"0123456789")

    # When bytes are read from it
    # Then they are those of the position, and fewer at the end of the file
    for found in (files.reads.at, files.reads.cached):
        assert found("a", 3, 4) == b"3456"
        assert found("a", 0, 10) == b"0123456789"
    assert files.reads.at("a", 8, 2**40) == b"89"
    assert files.reads.at("a", 11, 5) == b""
    assert files.reads.cached("a", 8, 2**40) is None
    assert files.reads.size("a") == 10
    files.reads.ahead("a", 0, 10)
    # And a later write is seen
    files.write("a", 3, b"x")
    assert files.reads.at("a", 3, 2) == b"x4"


def test_a_missing_file_is_an_error(files: Files) -> None:
    for read in (files.reads.at, files.reads.cached, files.reads.ahead):
        with pytest.raises(FileNotFoundError):
            read("a", 0, 1)
    with pytest.raises(FileNotFoundError):
        files.reads.size("a")


def test_a_removed_or_replaced_file_is_not_read_any_more(files: Files) -> None:
    # Given two files that were read
    for name in ("a", "b"):
        files.create(name, 1)
        files.write(name, 0, name.encode())
        assert files.reads.at(name, 0, 1) == name.encode()

    # When one replaces the other
    files.rename("a", "b")

    # Then its name has the new content, and the old name none
    assert files.reads.at("b", 0, 1) == b"a"
    with pytest.raises(FileNotFoundError):
        files.reads.at("a", 0, 1)
    # And a file that is created again is empty, a removed one is gone
    files.create("b", 1)
    assert files.reads.at("b", 0, 1) == b"\0"
    files.remove("b")
    with pytest.raises(FileNotFoundError):
        files.reads.at("b", 0, 1)


# --- the disk -----------------------------------------------------------------------------------


def test_the_number_of_descriptors_is_bounded(tmp_path: Path) -> None:
    # Given more files than may be open
    for number in range(20):
        (tmp_path / f"file-{number}").write_bytes(bytes([number]))
    reads = DiskReads(tmp_path, most=6)

    # When four threads read all of them, many times
    def read() -> None:
        for turn in range(400):
            number = turn * 7 % 20
            assert reads.at(f"file-{number}", 0, 1) == bytes([number])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # Then at most so many stay open, and none after closing
    assert reads.open_files() == 6
    assert len(open_in(tmp_path)) == 6
    reads.close()
    assert open_in(tmp_path) == []


def test_the_files_used_last_stay_open(tmp_path: Path) -> None:
    # Given three files, of which two may be open
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    reads = DiskReads(tmp_path, most=2)

    # When a is used again before c is opened
    for name in "abac":
        reads.at(name, 0, 1)

    # Then b was closed
    assert open_in(tmp_path) == ["a", "c"]
    reads.close()


def test_a_file_that_is_closed_during_a_read_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a read that is interrupted by the removal of its file
    (tmp_path / "a").write_bytes(b"abcd")
    reads = DiskReads(tmp_path)
    system_read = os.pread

    def removing(descriptor: int, length: int, offset: int) -> bytes:
        (tmp_path / "a").unlink(missing_ok=True)
        reads.close("a")
        return system_read(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", removing)

    # When it continues
    # Then it returns what the file contained, and leaves no descriptor
    assert reads.at("a", 1, 2) == b"bc"
    assert reads.open_files() == 0
    assert open_in(tmp_path) == []


def test_a_read_that_returns_less_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    system_read = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: system_read(args[0], min(args[1], 3), args[2]))
    assert DiskReads(tmp_path).at("a", 1, 8) == b"12345678"


def forget_pages(path: Path) -> None:
    """Ask the system to drop what it has of a file in memory."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_what_the_page_cache_does_not_have_is_not_cached(disk: DiskFiles) -> None:
    # Given a file on disk of which the system has nothing in memory
    disk.create("a", 100_000)
    disk.write("a", 0, bytes(range(100)) * 1000)
    path = Path(disk.path("a"))
    forget_pages(path)
    # When bytes are read from the cache
    # Then there are none, whether the file was open before or not
    assert disk.reads.cached("a", 0, 5000) is None
    forget_pages(path)
    assert disk.reads.cached("a", 0, 5000) is None
    # And after they have been read from the disk, they are there
    assert disk.reads.at("a", 0, 5000) == bytes(range(100)) * 50
    assert disk.reads.cached("a", 100, 150) == bytes(range(100)) + bytes(range(50))
    # And bytes after the end are not
    assert disk.reads.cached("a", 99_990, 11) is None


@plain
def test_bytes_of_which_the_page_cache_has_a_part_are_not_cached(
    disk: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a system whose page cache has nothing, or only a part
    disk.create("a", 100)
    system_read = os.preadv
    answers: list[int | OSError] = [BlockingIOError(errno.EAGAIN, "cold"), 50, 100]

    def answer(descriptor: int, buffers: list[bytearray], offset: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        found = answers.pop(0)
        if isinstance(found, OSError):
            raise found
        system_read(descriptor, buffers, offset)
        return found

    monkeypatch.setattr(os, "preadv", answer)

    # When bytes are read from the cache
    found = [disk.reads.cached("a", 0, 100) for _ in range(3)]

    # Then they are returned only if all of them are there
    assert found == [None, None, bytes(100)]


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_file_system_that_does_not_know_the_flag_is_cached_if_it_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_memory: bool
) -> None:
    # Given a file system without RWF_NOWAIT, which the list of mounts shows as one in memory or on disk
    device = Path("/proc").stat().st_dev
    kind = "tmpfs" if in_memory else "ext4"
    mounts = tmp_path / "mounts"
    mounts.write_text(f"22 27 {os.major(device)}:{os.minor(device)} / /proc rw - {kind} none rw\n")
    monkeypatch.setattr(system, "_MOUNTS", mounts)
    reads = DiskReads("/proc")
    # When bytes are read from the cache, twice
    found = [reads.cached("version", 0, 5) for _ in range(2)]
    reads.close()
    # Then they are found if it is in memory
    assert found == [b"Linux" if in_memory else None] * 2


@plain
@pytest.mark.parametrize(
    "number", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM], ids=errno.errorcode.get
)
@pytest.mark.parametrize("in_memory", [True, False])
def test_without_that_flag_only_a_file_system_in_memory_counts_as_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, number: int, in_memory: bool
) -> None:
    # Given a system without RWF_NOWAIT
    (tmp_path / "a").write_bytes(b"abc")
    calls = []

    def refuse(*_args: object) -> int:
        calls.append(1)
        raise OSError(number, "not here")

    monkeypatch.setattr(os, "preadv", refuse)
    device = tmp_path.stat().st_dev
    kind = "tmpfs" if in_memory else "ext4"
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "22 27 0:999 / /proc rw - tmpfs proc rw\n"
        f"27 1 {os.major(device)}:{os.minor(device)} / /a rw,x shared:1 - {kind} /dev/vda rw\n"
    )
    monkeypatch.setattr(system, "_MOUNTS", mounts)
    reads = DiskReads(tmp_path)

    # When bytes are read from the cache, twice
    found = [reads.cached("a", 1, 2) for _ in range(2)]

    # Then they are found if the file system is in memory, and the system was asked once
    assert found == [b"bc" if in_memory else None] * 2
    assert len(calls) == 1


def test_without_a_list_of_mounts_nothing_counts_as_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    monkeypatch.setattr(system, "_MOUNTS", tmp_path / "missing")
    monkeypatch.setattr(reads_module, "NOWAIT", 0)
    assert DiskReads(tmp_path).cached("a", 0, 3) is None


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no tmpfs here")
def test_a_file_in_shared_memory_is_cached() -> None:
    directory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        (directory / "a").write_bytes(b"abc")
        reads = DiskReads(directory)
        assert reads.cached("a", 0, 3) == b"abc"
        reads.close()
    finally:
        shutil.rmtree(directory)


@plain
def test_an_error_of_the_disk_is_not_a_missing_page(
    disk: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.create("a", 3)

    def fail(*_args: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match="broken"):
        disk.reads.cached("a", 0, 3)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "a").symlink_to("real")
    with pytest.raises(StoreUnusable, match="symbolic link"):
        DiskReads(tmp_path).at("a", 0, 1)


def test_a_fork_reads_nothing_and_keeps_no_descriptor(disk: DiskFiles, tmp_path: Path) -> None:
    # Given an open file, and a mutex that another thread holds during the fork
    disk.create("a", 3)
    disk.reads.at("a", 0, 3)
    pid = 0
    with disk.reads._mutex:
        pid = os.fork()
        if pid == 0:
            # When the child reads
            status = 1
            try:
                disk.reads.at("a", 0, 1)
            except ForkedStore:
                status = 2 if open_in(tmp_path) else 0
            finally:
                os._exit(status)

    # Then it is refused
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert disk.reads.at("a", 0, 3) == bytes(3)
