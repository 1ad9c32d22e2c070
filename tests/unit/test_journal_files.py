"""The interface to the disk and its in-memory twin: the same operations, the same results."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.errors import ForkedStore, StoreInUse, StoreUnusable
from headwater.journal.disk.files import DiskFiles, Files
from headwater.testing.files import CrashableFiles
from tests.descriptors import descriptors_left


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskFiles]:
    files = DiskFiles(tmp_path / "data")
    files.lock()
    yield files
    files.unlock()


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    made: Files = DiskFiles(tmp_path) if request.param == "disk" else CrashableFiles()
    made.lock()
    yield made
    made.unlock()


# --- both ---------------------------------------------------------------------------------------


def test_a_new_file_is_full_of_zeros(files: Files) -> None:
    files.create("a", 5000)
    assert bytes(files.content("a").data) == bytes(5000)


def test_a_file_that_is_created_again_is_empty(files: Files) -> None:
    files.create("a", 10)
    files.write("a", 0, b"old")
    files.create("a", 4)
    assert bytes(files.content("a").data) == bytes(4)


def test_bytes_of_every_kind_are_written(files: Files) -> None:
    files.create("a", 10)
    files.write("a", 2, b"ab")
    files.write("a", 4, bytearray(b"cd"))
    files.write("a", 6, memoryview(b"ef"))
    files.sync("a")
    assert bytes(files.content("a").data) == b"\0\0abcdef\0\0"
    assert bytes(files.read("a", 4)) == b"\0\0ab"


def test_allocation_adds_zeros_and_never_shrinks(files: Files) -> None:
    files.create("a", 4)
    files.write("a", 0, b"abcd")
    files.allocate("a", 8)
    files.allocate("a", 2)
    assert bytes(files.content("a").data) == b"abcd\0\0\0\0"


def test_a_renamed_file_replaces_another(files: Files) -> None:
    files.create("a", 2)
    files.create("b", 2)
    files.write("a", 0, b"xy")
    assert bytes(files.content("b").data) == b"\0\0"
    files.rename("a", "b")
    files.sync_directory()
    assert "a" not in files.names()
    assert bytes(files.content("b").data) == b"xy"
    files.write("b", 1, b"z")
    assert bytes(files.content("b").data) == b"xz"


@pytest.mark.parametrize("size", [0, 1, 5000, 3 * (1 << 20) + 5])
@pytest.mark.parametrize("used", [0, 1, 4096, 4097, 1 << 20, (1 << 20) + 1, 3 * (1 << 20) + 5])
def test_the_end_of_the_used_bytes_is_known(files: Files, size: int, used: int) -> None:
    files.create("a", size)
    if used:
        files.write("a", used - 1, b"x")
    content = files.content("a")
    assert content.used == used
    assert len(content.data) == max(size, used)
    assert bytes(content.data).rstrip(b"\0") == (bytes(used - 1) + b"x" if used else b"")


def test_a_content_is_that_of_its_time_and_is_read_in_parts(files: Files) -> None:
    # Given the content of a file that is written to
    files.create("a", 10)
    files.write("a", 0, b"abcd")
    content = files.content("a")
    # When more is written after what was used
    files.write("a", 4, b"later")
    # Then that does not belong to the content
    assert (content.size, content.used) == (10, 4)
    assert [bytes(content.part(at, 4)) for at in (0, 3, 8, 10, 12)] == [
        b"abcd",
        b"d\0\0\0",
        b"\0\0",
        b"",
        b"",
    ]
    assert bytes(content.data) == b"abcd" + bytes(6)
    assert bytes(files.content("a").data) == b"abcdlater\0"


def test_a_removed_file_is_gone(files: Files) -> None:
    files.create("a", 2)
    files.remove("a")
    assert "a" not in files.names()
    with pytest.raises(FileNotFoundError):
        files.content("a")


def test_free_space_is_known(files: Files) -> None:
    assert files.free_bytes() > 0


def test_a_directory_is_locked_once(files: Files, tmp_path: Path) -> None:
    other = DiskFiles(tmp_path) if isinstance(files, DiskFiles) else files
    with pytest.raises(StoreInUse):
        other.lock()
    files.unlock()
    other.lock()
    other.unlock()


# --- the disk -----------------------------------------------------------------------------------


def test_space_is_allocated_for_a_new_file(disk: DiskFiles) -> None:
    disk.create("a", 1 << 20)
    assert Path(disk.path("a")).stat().st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_zeros_are_written_where_preallocation_is_not_supported(
    disk: DiskFiles, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    # Given a file system without preallocation
    def refuse(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(number, "not here")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    # When a file larger than one write is created and extended
    disk.create("a", (1 << 20) + 7)
    disk.write("a", 0, b"kept")
    disk.allocate("a", (1 << 21) + 7)
    # Then its space is allocated nevertheless
    assert Path(disk.path("a")).stat().st_blocks * 512 >= 1 << 21
    assert bytes(disk.content("a").data) == b"kept" + bytes((1 << 21) + 3)


def test_a_full_disk_does_not_count_as_missing_preallocation(
    disk: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match="full"):
        disk.create("a", 100)


def test_a_partial_write_is_completed(disk: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:2], at))
    disk.create("a", 0)
    disk.write("a", 0, b"hello world")
    assert bytes(disk.content("a").data) == b"hello world"


def test_fsync_is_used_where_fdatasync_is_missing(
    disk: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(os, "fsync", synced.append)
    disk.create("a", 1)
    disk.sync("a")
    assert len(synced) == 1


def test_the_error_names_the_process_that_locks_a_directory(tmp_path: Path) -> None:
    # Given a process that has locked a directory
    program = (
        "import sys\n"
        "from headwater.journal.disk.files import DiskFiles\n"
        "files = DiskFiles(sys.argv[1]); files.lock()\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        # When another process locks it, then the error names the first one and the remedy
        with pytest.raises(StoreInUse) as caught:
            DiskFiles(tmp_path).lock()
        assert f"process {holder.pid}" in str(caught.value)
        assert str(tmp_path) in str(caught.value)
        assert "choose another directory" in str(caught.value)
        # And when the first process is killed, the directory is free
        holder.kill()
        holder.wait()
    files = DiskFiles(tmp_path)
    files.lock()
    files.unlock()


def test_a_process_that_could_not_write_its_id_still_has_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        first = DiskFiles(tmp_path)
        first.lock()
    with pytest.raises(StoreInUse, match="another process"):
        DiskFiles(tmp_path).lock()
    first.unlock()


def test_a_process_without_a_free_descriptor_can_make_names_durable(disk: DiskFiles) -> None:
    # Given a new file, and a process whose descriptors are all in use
    disk.create("a", 10)
    with descriptors_left(0):
        with pytest.raises(OSError, match="Too many open files"):
            disk.create("b", 10)
        # When its name is made durable, then that succeeds
        disk.sync_directory()


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_child_neither_locks_nor_writes(tmp_path: Path) -> None:
    # Given a store whose process forks a child that keeps running
    files = DiskFiles(tmp_path)
    files.lock()
    files.create("a", 10)
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        refused = 0
        operations: list[Callable[[], object]] = [
            lambda: files.write("a", 0, b"child"),
            lambda: files.sync("a"),
            lambda: files.create("b", 1),
            lambda: files.rename("a", "c"),
            lambda: files.remove("a"),
            files.sync_directory,
            files.lock,
        ]
        for operation in operations:
            try:
                operation()
            except ForkedStore as error:
                refused += str(tmp_path) in str(error)
            except BaseException:
                # The child must not continue with the tests.
                os._exit(1)
        os.write(go, bytes([refused]))
        signal.pause()
        os._exit(0)
    try:
        # Then every operation in the child is refused
        assert os.read(ready, 1) == bytes([7])
        # And when the parent unlocks, the directory is free although the child still runs
        files.unlock()
        other = DiskFiles(tmp_path)
        other.lock()
        assert other.names() == ["a", "headwater.lock"]
        assert bytes(other.content("a").data) == bytes(10)
        other.unlock()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(go)


def test_an_executed_program_inherits_no_descriptor(disk: DiskFiles) -> None:
    disk.create("a", 10)
    assert disk._lock is not None
    for descriptor in (disk._lock, *disk._open.values()):
        assert not os.get_inheritable(descriptor)


def test_the_error_says_why_a_directory_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable) as caught:
        DiskFiles(tmp_path / "file" / "data").lock()
    assert str(tmp_path / "file" / "data") in str(caught.value)
    assert "Errno 20" in str(caught.value)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_without_write_permission_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreUnusable, match="write permission"):
        DiskFiles(tmp_path).lock()


def test_a_file_system_without_locks_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreUnusable, match="No locks available"):
        DiskFiles(tmp_path).lock()


def test_a_file_system_without_locks_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a store on a file system that locks nothing, as some network shares
    (tmp_path / "headwater.lock").touch()
    (tmp_path / "MANIFEST").touch()

    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    # When it is opened twice for reading
    for _ in range(2):
        files = DiskFiles(tmp_path)
        files.lock_to_read()
        assert files.names() == ["MANIFEST", "headwater.lock"]
        files.unlock()
    # Then it can be read, and one line says that it is not locked
    (said,) = [one.getMessage() for one in caplog.records]
    assert "is read without a lock (headwater.lock: No locks available)" in said


def test_unlocking_twice_does_nothing(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    files.lock()
    files.unlock()
    files.unlock()
