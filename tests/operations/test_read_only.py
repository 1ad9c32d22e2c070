"""What only reads a data directory needs no right to write there, and writes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater.errors import StoreInUse
from headwater.journal.disk.files import DiskFiles
from headwater.persistence.checking import check_store
from headwater.testing.server import server_process
from tests.mounts import (
    READ_ONLY_BIND,
    READ_ONLY_TMPFS,
    mounted,
    run_commands,
    run_program,
)

pytestmark = pytest.mark.slow

UNLOCKED = "is read without a lock"
ENTRY = "1-1"

PAST = """
import sys, headwater, redis
with headwater.connect(sys.argv[1]) as past:
    print(past.xlen("s"), past.xrange("s", "5-1", "5-1")[0][1][b"n"])
    try:
        past.xadd("s", {"n": 1})
    except redis.ReadOnlyError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A stopped store with entries on disk, a past that is kept, an image, and a journal after it; and a moment of
    the past."""
    path = tmp_path_factory.mktemp("stopped") / "data"
    with server_process(
        *("--journal-retention", "1h", "--stream-hot-bytes", "16kb", "--save", "")
    ) as server:
        with redis.Redis.from_url(server.url) as client:
            pipe = client.pipeline(transaction=False)
            for n in range(1, 1_001):
                pipe.xadd("s", {"n": n, "text": os.urandom(200)}, id=f"{n}-1")
            pipe.execute()
            now: Any = client.time()
            time.sleep(0.005)  # the next change has a later time
            client.xadd("s", {"n": 1_001}, id="1001-1")
            client.save()
            client.xadd("s", {"n": 1_002}, id="1002-1")
        server.stop()
        shutil.copytree(server.data, path)
    return path, now[0] * 1000 + now[1] // 1000


@pytest.fixture
def at_ms(stopped: tuple[Path, int]) -> int:
    """A moment before the image."""
    return stopped[1]


@pytest.fixture
def data(stopped: tuple[Path, int], tmp_path: Path) -> Iterator[Path]:
    """A copy of the store, of which a test may change what it likes."""
    path = tmp_path / "data"
    shutil.copytree(stopped[0], path)
    yield path
    path.chmod(0o700)  # so that it can be removed


Reader = tuple[list[str], str]
"""A command, and what it must print."""


def readers(where: Path, made: Path, at_ms: int) -> list[Reader]:
    """Return every command that reads a directory."""
    directory, moment = str(where), str(at_ms)
    return [
        (["check", directory], "healthy"),
        (["repair", directory, "--to", str(made / "new"), "--dry-run"], "nothing to repair"),
        (["backup", directory, str(made / "copy")], "files, "),
        (["restore", directory, "--to", str(made / "now")], "files, "),
        (["restore", directory, "--to", str(made / "then"), "--at", moment], "as of "),
        (["store", directory], "segments"),
        (["store", directory, "--streams"], "STREAM"),
        (["journal", "verify", directory], "journal-000001"),
        (["journal", "dump", directory, "--limit", "5"], "stream created"),
        (["history", "s", ENTRY, "--dir", directory], "added"),
    ]


def read_all(
    where: Path,
    made: Path,
    at_ms: int,
    *,
    begin: Sequence[str] = (),
    heeding: bool = False,
) -> list[str]:
    """Run every command that reads. Return what each has written on standard error."""
    made.mkdir()
    commands = readers(where, made, at_ms)
    results = run_commands([words for words, _said in commands], begin=begin, heeding=heeding)
    for (words, said), one in zip(commands, results, strict=True):
        assert one.status == 0, (words, one)
        assert said in one.printed, (words, one)
    for copy in made.iterdir():
        assert check_store(DiskFiles(copy)).healthy, copy
        assert {one.name for one in copy.glob("*.lock")} == {"headwater.lock", "backup.lock"}, copy
    return [one.complaint for one in results]


def state(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything in a directory that a command could change, with the time of the last change."""
    found = {
        one.name: (one.stat().st_mtime_ns, one.stat().st_mode, one.read_bytes())
        for one in directory.iterdir()
    }
    return found | {".": (directory.stat().st_mtime_ns, directory.stat().st_mode, b"")}


def remove_locks(directory: Path) -> None:
    for one in directory.glob("*.lock"):
        one.unlink()


# --- read-only file systems -----------------------------------------------------------------------


@pytest.mark.parametrize("script", [READ_ONLY_BIND, READ_ONLY_TMPFS], ids=["bind", "tmpfs"])
def test_every_reader_works_on_a_read_only_mount(
    data: Path, at_ms: int, tmp_path: Path, script: str
) -> None:
    # Given a stopped store on a mount without the right to write
    mount = tmp_path / "mount"
    begin, before = mounted(script, data, mount), state(data)
    # When it is read, then everything works with the lock that is there, and nothing is written
    said = read_all(mount, tmp_path / "made", at_ms, begin=begin)
    assert "".join(said) == ""
    assert state(data) == before
    # And the same of a store without lock files, such as a copy: each command says so once
    remove_locks(data)
    said = read_all(mount, tmp_path / "more", at_ms, begin=begin)
    assert [one.count(UNLOCKED) for one in said].count(1) == len(said) - 1
    assert "".join(said).count(UNLOCKED) == len(said) - 1  # `store` reads names and sizes only


def test_a_moment_is_read_on_a_read_only_mount(data: Path, at_ms: int, tmp_path: Path) -> None:
    begin = mounted(READ_ONLY_TMPFS, data, tmp_path / "mount")
    url = f"headwater://{tmp_path / 'mount'}?at={at_ms}"
    printed = run_program(PAST, url, begin=begin)
    assert printed.startswith("1000 b'5'\n")
    assert "this is the store as it was at" in printed
    assert UNLOCKED not in printed
    remove_locks(data)
    assert run_program(PAST, url, begin=begin).count(UNLOCKED) == 1


def test_what_writes_says_that_it_cannot(data: Path, tmp_path: Path) -> None:
    # Given a mount without the right to write, and a damaged store elsewhere
    mount, damaged = tmp_path / "mount", tmp_path / "damaged"
    begin = mounted(READ_ONLY_BIND, data, mount)
    shutil.copytree(data, damaged)
    flip_last_record(damaged)
    # When a server is started there, or a store is copied to it
    server = [*begin, sys.executable, "-m", "headwater.cli.main", "serve", "--port", "0"]
    served = subprocess.run(
        [*server, "--dir", str(mount)], capture_output=True, text=True, check=False, timeout=60
    )
    commands = [
        ["repair", str(damaged), "--yes", "--to", str(mount / "new")],
        ["backup", str(damaged), str(mount / "new")],
        ["restore", str(damaged), "--to", str(mount / "new")],
    ]
    found = run_commands(commands, begin=begin)
    # Then each says in one line that it may not write
    for complaint in (served.stderr, *(one.complaint for one in found)):
        assert is_one_line(complaint), complaint
        assert "Read-only file system" in complaint
    assert [served.returncode, *(one.status for one in found)] == [1, 1, 1, 1]


def test_commands_with_a_url_read_a_moment_and_refuse_the_store_itself(
    data: Path, at_ms: int, tmp_path: Path
) -> None:
    mount = tmp_path / "mount"
    begin, before = mounted(READ_ONLY_BIND, data, mount), state(data)
    past, present = f"headwater://{mount}?at={at_ms}", f"headwater://{mount}"
    explained, listed, refused, doctor = run_commands(
        [
            ["explain", "--window", "0s", "--url", past],
            ["streams", "list", "--url", past],
            ["explain", "--url", present],
            ["doctor", "--url", present],
        ],
        begin=begin,
    )
    assert (explained.status, explained.complaint) == (0, "")
    assert "1,000" in listed.printed
    assert refused.status == 1
    assert is_one_line(refused.complaint)
    assert "Read-only file system" in refused.complaint
    assert doctor.status == 3
    assert "Read-only file system" in doctor.printed
    assert doctor.complaint == ""
    assert state(data) == before


def flip_last_record(directory: Path) -> None:
    path = max(one for one in directory.glob("journal-*") if one.read_bytes()[200:].strip(b"\0"))
    content = bytearray(path.read_bytes())
    content[len(content.rstrip(b"\0")) // 2] ^= 1
    path.write_bytes(content)


def is_one_line(complaint: str) -> bool:
    lines = complaint.strip().splitlines()
    return len(lines) == 1 and lines[0].startswith("headwater: ")


# --- rights -----------------------------------------------------------------------------------------


def only_readable(data: Path) -> None:
    for one in data.iterdir():
        one.chmod(0o400)
    data.chmod(0o500)


def of_somebody_else(data: Path) -> None:
    for one in [data, *data.iterdir()]:
        one.chmod(0o755 if one is data else 0o644)
        if os.geteuid() == 0:
            os.chown(one, 12_345, 12_345)


def every_user_may_write(data: Path) -> None:
    data.chmod(0o777)


def with_second_names(data: Path) -> None:
    """As tools for backups leave them that link what has not changed."""
    (data.parent / "yesterday").mkdir()
    for one in data.iterdir():
        (data.parent / "yesterday" / one.name).hardlink_to(one)


def with_unreadable_locks(data: Path) -> None:
    for one in data.glob("*.lock"):
        one.chmod(0)
    data.chmod(0o500)


@pytest.mark.parametrize(
    "change", [only_readable, of_somebody_else, every_user_may_write, with_second_names]
)
def test_every_reader_works_with_the_right_to_read(
    data: Path, at_ms: int, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    # Given a store that a user may read, and perhaps not change
    change(data)
    before = state(data)
    # When that user reads it, then everything works, and nothing is written
    said = read_all(data, tmp_path / "made", at_ms, heeding=True)
    assert said == [""] * 10
    assert state(data) == before


def test_without_the_right_to_lock_each_reader_says_so_once(
    data: Path, at_ms: int, tmp_path: Path
) -> None:
    before = state(data)
    with_unreadable_locks(data)
    said = read_all(data, tmp_path / "made", at_ms, heeding=True)
    assert [one.count(UNLOCKED) for one in said] == [1, 1, 1, 1, 1, 0, 1, 1, 1, 1]
    assert "make sure that no server uses the directory meanwhile" in said[0]
    assert state(data).keys() == before.keys()


@pytest.mark.parametrize("name", ["MANIFEST", "image-000001", "journal-000001", "segment-000001"])
def test_a_file_without_the_right_to_read_it_is_an_error_and_not_damage(
    data: Path, at_ms: int, tmp_path: Path, name: str
) -> None:
    (data / name).chmod(0)
    (tmp_path / "made").mkdir()
    commands = [words for words, _said in readers(data, tmp_path / "made", at_ms)]
    for words, found in zip(commands, run_commands(commands, heeding=True), strict=True):
        if found.status == 0:  # it does not need this file
            continue
        assert found.status == 1, (words, found)
        assert is_one_line(found.complaint), (words, found)
        assert "Permission denied" in found.complaint
        assert name in found.complaint
    assert run_commands([commands[0]], heeding=True)[0].status == 1


# --- other places -------------------------------------------------------------------------------------


def missing(place: Path) -> str:
    return f"there is no directory {place}"


def a_file(place: Path) -> str:
    place.write_text("text")
    return f"{place} is not a directory"


def empty(place: Path) -> str:
    place.mkdir()
    return "no store"


def not_listable(place: Path) -> str:
    place.mkdir(mode=0o300)
    return f"{place} cannot be read: [Errno 13] Permission denied"


def not_enterable(place: Path) -> str:
    place.mkdir()
    (place / "MANIFEST").touch()
    place.chmod(0o400)
    return "Permission denied"


def in_a_closed_directory(place: Path) -> str:
    place.parent.joinpath("closed").mkdir(mode=0)
    place.symlink_to("closed/data")
    return f"{place} cannot be read: [Errno 13] Permission denied"


def a_dangling_link(place: Path) -> str:
    place.symlink_to("nowhere")
    return f"{place} is a symbolic link to nowhere, which does not exist"


def a_loop(place: Path) -> str:
    place.symlink_to(place.name)
    return "Too many levels of symbolic links"


@pytest.mark.parametrize(
    "make",
    [
        missing,
        a_file,
        empty,
        not_listable,
        not_enterable,
        in_a_closed_directory,
        a_dangling_link,
        a_loop,
    ],
)
def test_another_place_is_an_error_of_one_line(tmp_path: Path, make: Callable[[Path], str]) -> None:
    # Given a place that has no store, or that nobody may look into
    place = tmp_path / "place"
    said = make(place)
    (tmp_path / "made").mkdir()
    commands = [words for words, _said in readers(place, tmp_path / "made", 1)]
    # When each command reads it, then it says what is wrong, and makes nothing
    for words, found in zip(commands, run_commands(commands, heeding=True), strict=True):
        assert found.status == 1, (words, found)
        assert is_one_line(found.complaint), (words, found)
        assert said in found.complaint, (words, found)
    assert list((tmp_path / "made").iterdir()) == []
    if make is empty:
        assert list(place.iterdir()) == []


def test_a_link_to_the_directory_is_followed(data: Path, at_ms: int, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(data)
    assert read_all(tmp_path / "link", tmp_path / "made", at_ms) == [""] * 10


# --- neighbours -----------------------------------------------------------------------------------------


def test_readers_share_a_directory_and_exclude_a_server(data: Path, at_ms: int) -> None:
    # Given a store that one reader has opened
    with headwater.connect(f"headwater://{data}?at={at_ms}") as past:
        # When others read it, then they can
        assert check_store(DiskFiles(data)).healthy
        with headwater.connect(f"headwater://{data}?at={at_ms - 1}") as other:
            assert other.xlen("s") == past.xlen("s")
        # And a server cannot start
        with pytest.raises(StoreInUse, match="in use by a process that reads it, such as"):
            headwater.connect(f"headwater://{data}")
    with headwater.connect(f"headwater://{data}") as client:
        # And while one runs, what needs a directory that nobody changes is refused
        client.xadd("s", {"n": 1})
        with pytest.raises(StoreInUse, match=f"is in use by process {os.getpid()}"):
            check_store(DiskFiles(data))


def test_what_a_server_creates_first_is_what_a_backup_locks(tmp_path: Path) -> None:
    # Given a server in a new directory, then a backup of it writes nothing there
    with server_process() as server:
        before = set(server.data.iterdir())
        (found, verified) = run_commands(
            [
                ["backup", str(server.data), str(tmp_path / "copy")],
                ["journal", "verify", str(server.data)],
            ]
        )
        assert (found.status, found.complaint) == (0, "")
        assert (verified.status, verified.complaint) == (0, "")
        assert set(server.data.iterdir()) == before
