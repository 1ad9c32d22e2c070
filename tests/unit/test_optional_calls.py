"""Whatever a system, a file system or a container's filter may refuse has a replacement, and a test without it.

| call | for | instead | test without it |
|---|---|---|---|
| copy_file_range | backups | read and write | here, `test_journal_copies.py` |
| preadv2 | reads | pread | here |
| RWF_NOWAIT | reads from the page cache | tmpfs reads directly, else a thread | here, `test_journal_reads.py` |
| posix_fallocate | space in advance | writes zeros | here, `test_journal_files.py` |
| posix_fadvise | reading ahead | nothing | here |
| lseek SEEK_DATA, SEEK_HOLE | the end of what was written | reads it | here, `test_journal_system.py` |
| ftruncate beyond the end | the size of a copy | writes zeros | `test_journal_copies.py` |
| fdatasync | durable bytes | fsync | here, `test_journal_files.py` |
| fsync of a directory | durable names | nothing: the file system has none | `operations/test_backup_destinations.py` |
| statvfs | free space | counts as enough, if unknown | here |
| chmod, chown | files of a configuration | permissions of new files | here |
| /proc/self/mountinfo, statm | kind of file system, memory | not in memory; getrusage | `test_journal_reads.py`, here |
| epoll, eventfd | many sockets | a reader for each | here, `conformance/conftest.py` |
| TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT | dead clients | the system's times | here |
| setpriority, nice, oom_score_adj | helpers that give way | the usual priority | here |
| malloc_trim | MEMORY PURGE | nothing | `conformance/` (the C library) |
| pthread_getcpuclockid | a start that hangs | elapsed time | `server/supervision.py` asks for it |
| setrlimit | more clients | fewer maxclients | `e2e/` |

flock is required: without it two processes could write to one directory, so a store is refused.

A seccomp filter refuses the calls of a whole server and its helper here, as a container does it
(https://github.com/scylladb/seastar/issues/883, https://github.com/rust-lang/rust/issues/51266): compiled modules call the
system themselves, so nothing in Python could pretend.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.config.config import Config
from headwater.journal.disk.files import DiskFiles
from headwater.journal.disk.system import allocate, used_bytes
from headwater.server.net.loop import HAS_EPOLL
from headwater.server.replacement import replace_file
from headwater.server.services import memory_use
from headwater.testing.server import server_process, server_thread

_NAMES = (
    *("copy_file_range", "preadv2", "fallocate", "fadvise64", "eventfd2", "epoll_create1"),
    *("setpriority", "fdatasync", "fchmod", "fchown", "lseek"),
)
_NUMBERS = {
    "x86_64": (326, 327, 285, 221, 290, 291, 141, 75, 91, 93, 8),
    "aarch64": (285, 286, 47, 223, 19, 20, 140, 83, 52, 55, 62),
}
NUMBERS = dict(zip(_NAMES, _NUMBERS[platform.machine()], strict=True))
"""The numbers of system calls; of lseek, SEEK_DATA and SEEK_HOLE are refused."""

PROGRAM = """
import ctypes, errno, os, struct, sys
from pathlib import Path

where, number, *calls = sys.argv[1:]
LOAD, EQUAL, ALLOW, ERROR = 0x20, 0x15, 0x7FFF0000, 0x00050000 | int(number)
lines = [(LOAD, 0, 0, 0)]
for call in map(int, calls):
    if call in (8, 62):  # lseek
        lines += [(EQUAL, 0, 5, call), (LOAD, 0, 0, 32), (EQUAL, 1, 0, 3), (EQUAL, 0, 1, 4), (6, 0, 0, ERROR),
                  (LOAD, 0, 0, 0)]
    else:
        lines += [(EQUAL, 0, 1, call), (6, 0, 0, ERROR)]
lines.append((6, 0, 0, ALLOW))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
assert libc.prctl(22, 2, program) == 0, os.strerror(ctypes.get_errno())  # seccomp, a filter

import headwater, redis
from headwater.journal.disk.files import DiskFiles
from headwater.persistence.backup import back_up
from headwater.persistence.checking import check_store
from headwater.testing.server import server_process

with server_process("--stream-hot-bytes", "0", "--appendfsync", "always", directory=Path(where)) as server:
    with redis.Redis.from_url(server.url) as client:
        for first in range(0, 3000, 500):
            pipe = client.pipeline(transaction=False)
            for n in range(first, first + 500):
                pipe.xadd("s", {"n": n, "text": "x" * 100}, id=f"{n + 1}-0")
            pipe.execute()
        client.save()
        client.bgrewriteaof()
        client.xadd("s", {"n": 3000}, id="3001-0")
        assert len(client.xrange("s")) == 3001
        client.memory_purge()
        assert client.info("memory")["used_memory_rss"] > 0
    back_up(server.data, Path(where, "copy"))
assert check_store(DiskFiles(Path(where, "copy"))).healthy
with headwater.connect(f"headwater://{where}/copy") as client:
    assert len(client.xrange("s")) == 3001
with headwater.connect(f"headwater://{where}/data") as client:
    assert client.xlen("s") == 3001
print("done")
"""


def run_without(calls: list[str], number: int, directory: Path) -> None:
    numbers = [str(NUMBERS[call]) for call in calls]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory), str(number), *numbers],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "done\n", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("call", NUMBERS)
def test_a_store_works_without_a_call(tmp_path: Path, call: str) -> None:
    run_without([call], errno.ENOSYS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP])
def test_a_store_works_where_all_of_them_are_refused(tmp_path: Path, number: int) -> None:
    refused = [call for call in NUMBERS if call != "fdatasync" and number != errno.EINVAL]
    refused += ["lseek", "copy_file_range", "fallocate", "preadv2"] * (number == errno.EINVAL)
    run_without(refused, number, tmp_path)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS])
def test_the_end_of_a_file_is_found_where_holes_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(number, "not here")

    monkeypatch.setattr(os, "lseek", refuse)
    with (tmp_path / "file").open("w+b") as file:
        file.write(b"abc" + bytes(70_000))
        file.flush()
        assert used_bytes(file.fileno(), 70_003) == 3


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, None])
def test_space_is_taken_in_advance_without_fallocate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    def refuse(*_arguments: object) -> None:
        assert number is not None
        raise OSError(number, "not here")

    if number is None:
        monkeypatch.delattr(os, "posix_fallocate")
    else:
        monkeypatch.setattr(os, "posix_fallocate", refuse)
    with (tmp_path / "file").open("w+b") as file:
        allocate(file.fileno(), 100_000)
        assert os.fstat(file.fileno()).st_blocks * 512 >= 100_000


def test_reading_ahead_is_only_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOSYS, "not here")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    (tmp_path / "a").write_bytes(b"abc")
    reads = DiskFiles(tmp_path).reads
    reads.ahead("a", 0, 3)
    assert reads.at("a", 0, 3) == b"abc"
    reads.close()


def test_a_file_system_that_does_not_say_how_much_is_free_takes_a_store(tmp_path: Path) -> None:
    # Given a file system in memory without a limit, which reports no blocks at all
    place = tmp_path / "unlimited"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=0,mode=700", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(words, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        assert os.statvfs(place).f_blocks == 0
        # Then a server accepts writes there
        with (
            server_process(directory=place) as server,
            socket.create_connection(("127.0.0.1", server.port)) as client,
        ):
            client.sendall(b"XADD s * a b\r\n")
            assert client.recv(100).startswith(b"$")
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_configuration_is_replaced_where_permissions_cannot_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(errno.EPERM, "not here")

    for name in ("fchmod", "fchown"):
        monkeypatch.setattr(os, name, refuse)
    (tmp_path / "a.conf").write_text("old")
    replace_file(tmp_path / "a.conf", b"new")
    assert (tmp_path / "a.conf").read_text() == "new"


@pytest.mark.parametrize("missing", [True, False])
def test_clients_are_served_without_times_for_keepalive(
    monkeypatch: pytest.MonkeyPatch, *, missing: bool
) -> None:
    # Given a system that lacks these options, or refuses them
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"):
        if missing:
            monkeypatch.delattr(socket, name)
        else:
            monkeypatch.setattr(socket, name, 999_999)
    with (
        server_thread(Config(port=0, appendonly=False, save=(), tcp_keepalive=60)) as server,
        socket.create_connection(("127.0.0.1", server.port)) as client,
    ):
        client.sendall(b"PING\r\n")
        assert client.recv(100) == b"+PONG\r\n"


def test_memory_is_measured_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_arguments: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    assert memory_use.resident_bytes() > 1_000_000


def test_this_system_has_what_is_refused_here() -> None:
    """Otherwise the tests above would verify nothing."""
    assert HAS_EPOLL
    assert all(hasattr(os, name) for name in ("copy_file_range", "preadv", "posix_fallocate"))
