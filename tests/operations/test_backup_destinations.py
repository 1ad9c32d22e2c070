"""A store is copied to wherever an operator wants it, and what was not completed is not taken for a backup.

Reports of others that these tests, `test_backup_meanwhile.py` and `unit/test_journal_copies.py` try:

- another file system: transmission#3654, libuv#3108, toybox#382; copy_file_range refused or without effect: rust#75428,
  libuv#3354, fuse-overlayfs#399, bun#25534
- chmod on CIFS: node#31170; fsync of a directory on CIFS: rocksdb#2929, borg#1287, syncthing#4432
- holes that are none, with data that is not on the disk yet: zfs#15526
- no preallocation: galera#35, libqb#509; RWF_NOWAIT on AuFS: seastar#883 (`unit/test_optional_calls.py`)
- a backup that was not completed is kept and taken for one: backwpup#118, raspiBackup#629, OCA server-tools#1996
- a mounted disk is not empty: camunda#32393; a full disk whose name is not said: rdiff-backup#624
- files that change or are replaced while they are copied: nrtsearch#233, cloudnative-pg#8874
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headwater
from headwater.errors import StoreUnusable
from headwater.journal.disk.files import DiskFiles
from headwater.persistence.backup import back_up, restore_at
from headwater.persistence.checking import check_store

Run = Callable[..., str]
TEXT = "x" * 1000
ENTRIES = 1500


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with an image and 1.5 MB of journal."""
    directory = tmp_path / "data"
    with headwater.connect(f"headwater://{directory}") as client:
        client.xadd("s", {"n": 0})
        client.save()
        for n in range(1, ENTRIES):
            client.xadd("s", {"n": n, "text": TEXT})
    return directory


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system than ``tmp_path``."""
    place = tmp_path / "mounted"
    if mounted(place, "size=64m"):
        yield place
        subprocess.run(["umount", str(place)], check=True)
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        assert Path(directory).stat().st_dev != tmp_path.stat().st_dev
        yield Path(directory)


def mounted(place: Path, options: str) -> bool:
    """Mount a file system in memory at ``place``. Return whether that is permitted."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
    return (
        shutil.which("mount") is not None
        and subprocess.run(words, capture_output=True, check=False).returncode == 0
    )


def entries(directory: Path) -> int:
    check = check_store(DiskFiles(directory))
    assert check.damage is None
    assert check.healthy, check
    with headwater.connect(f"headwater://{directory}") as client:
        count: int = client.xlen("s")
        client.xadd("s", {"more": 1})
        return count


def test_a_store_is_copied_to_another_file_system_and_back(
    store: Path, elsewhere: Path, tmp_path: Path, run_headwater: Run
) -> None:
    # Given two mounted file systems
    assert elsewhere.stat().st_dev != store.stat().st_dev
    # When a store of one is backed up to the other, restored to the first, and restored as of now to the other
    assert "files" in run_headwater("backup", str(store), str(elsewhere / "copy"))
    assert "files" in run_headwater(
        "restore", str(elsewhere / "copy"), "--to", str(tmp_path / "back")
    )
    now = "9999-12-31T00:00:00Z"
    run_headwater("restore", str(store), "--to", str(elsewhere / "at"), "--at", now)
    # Then each starts and has all entries
    for copy in (elsewhere / "copy", tmp_path / "back", elsewhere / "at"):
        assert entries(copy) == ENTRIES


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_that_cannot_sync_directories_takes_a_backup(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    # Given a file system that refuses an fsync of a directory, such as CIFS
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    # Then a backup is made, and a store can be opened
    back_up(store, tmp_path / "copy")
    assert entries(tmp_path / "copy") == ENTRIES


def test_a_full_disk_is_named_and_keeps_nothing(
    store: Path, tmp_path: Path, run_headwater: Run
) -> None:
    # Given a disk that is too small
    small = tmp_path / "small"
    if not mounted(small, "size=1m"):
        pytest.skip("no file system can be mounted here")
    try:
        for command in (
            ("backup", str(store), str(small / "copy")),
            ("restore", str(store), "--to", str(small), "--at", "9999-01-01T00:00:00Z"),
        ):
            # When a store is copied there
            said = run_headwater(*command, status=1)
            # Then the error says which disk is full, and all space is free again
            assert "No space left on device" in said
            assert f"{small}" in said
            assert "Free some space" in said
            assert list(small.iterdir()) == []
        # And the same command works when there is space
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        assert "files" in run_headwater("backup", str(store), str(small / "copy"))
        assert entries(small / "copy") == ENTRIES
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_directory_that_cannot_be_written_is_an_error_that_changes_nothing(
    store: Path, tmp_path: Path, run_headwater: Run
) -> None:
    place = tmp_path / "read-only"
    if not mounted(place, "ro"):
        pytest.skip("no file system can be mounted here")
    try:
        for target in (place, place / "new"):
            said = run_headwater("backup", str(store), str(target), status=1)
            assert "Read-only file system" in said
            assert "Mount its file system with write permission" in said
            assert str(target) in said
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_copy_that_was_interrupted_does_not_start(
    store: Path, tmp_path: Path, run_headwater: Run
) -> None:
    # Given what a kill would leave after each piece of a backup, and of a restore
    copy = tmp_path / "copy"
    left: list[Path] = []

    def killed(*_progress: object) -> None:
        left.append(tmp_path / f"left-{len(left)}")
        shutil.copytree(copy, left[-1])

    back_up(store, copy, killed, piece_bytes=400_000)
    shutil.rmtree(copy)
    restore_at(store, copy, 2**45, killed, piece_bytes=400_000)
    assert len(left) > 10
    for directory in left:
        # When it is opened, checked, copied, or copied to again, then each says that it is unfinished
        with pytest.raises(StoreUnusable, match=r"is an unfinished copy.* remove the directory"):
            headwater.connect(f"headwater://{directory}")
        with pytest.raises(StoreUnusable, match="is an unfinished copy"):
            check_store(DiskFiles(directory))
        with pytest.raises(StoreUnusable, match="is an unfinished copy"):
            back_up(directory, tmp_path / "other")
        with pytest.raises(StoreUnusable, match="is an unfinished copy"):
            back_up(store, directory)
    assert "is an unfinished copy" in run_headwater("check", str(left[-1]), status=1)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("stops_with", [KeyboardInterrupt, OSError])
def test_a_copy_that_fails_leaves_nothing(
    store: Path, tmp_path: Path, stops_with: type[BaseException]
) -> None:
    def stop(_what: str, done: int, total: int) -> None:
        if done > total // 2:
            raise stops_with

    (tmp_path / "there").mkdir()
    for copy in (tmp_path / "new", tmp_path / "there"):
        with pytest.raises(stops_with):
            back_up(store, copy, stop, piece_bytes=100_000)
    # An empty directory stays, because it may be the place where a disk is mounted
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "there").iterdir()) == []
    back_up(store, tmp_path / "there")
    assert entries(tmp_path / "there") == ENTRIES


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", ["copy", "./copy/", "deep/er/copy", "link/copy", "link/../copy", "empty", "linked"]
)
def test_paths_are_as_operators_write_them(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headwater: Run, target: str
) -> None:
    # Given relative paths, symbolic links to directories, and a mounted disk
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "real"):
        (tmp_path / name / "lost+found").mkdir(parents=True)
    for name in ("link", "linked"):
        (tmp_path / name).symlink_to("real")
    (tmp_path / "store").symlink_to(store)
    # When a store is copied
    assert "files" in run_headwater("backup", "store/", target)
    # Then the copy is there, and the same command again is refused and changes nothing
    before = sorted(path.stat().st_mtime_ns for path in Path(target).iterdir())
    assert "is not an empty directory" in run_headwater("backup", "store", target, status=1)
    assert sorted(path.stat().st_mtime_ns for path in Path(target).iterdir()) == before
    assert entries(Path(target).absolute()) == ENTRIES


@pytest.mark.slow
@pytest.mark.parametrize("target", ["dangling", "circle", "x" * 300, "a/" * 2100, "/proc/copy"])
@pytest.mark.parametrize(
    "command", ["backup store {}", "restore store --to {}", "serve --dir {} --port 0", "check {}"]
)
def test_a_path_that_leads_nowhere_is_an_error_about_the_path(
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_headwater: Run,
    command: str,
    target: str,
) -> None:
    # Given a link to nothing, and one to itself
    for link, name in (("dangling", "nothing"), ("circle", "circle"), ("store", store)):
        (tmp_path / link).symlink_to(name)
    monkeypatch.chdir(tmp_path)
    # When a command is given one of them, a name that is too long, or a directory that no user can make
    words = command.format(target).split()
    said = run_headwater(*words, status=1, apart=words[0] == "serve")
    # Then the error is about the path
    assert target.rstrip("/") in said
    assert "Check the path" in said
    assert "write permission" not in said


@pytest.mark.parametrize("target", ["data", "data/copy", "link/copy", "data/../data/deep/copy"])
def test_a_store_is_not_copied_into_itself(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headwater: Run, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("data")
    names = sorted(store.iterdir())
    assert "is in the data directory" in run_headwater("backup", "data", target, status=1)
    assert {*names, store / "backup.lock"} == set(store.iterdir()) | {store / "backup.lock"}


def test_two_copies_to_one_directory_do_not_mix(store: Path, tmp_path: Path) -> None:
    # Given a backup in progress
    refused: list[str] = []

    def again(*_progress: object) -> None:
        # When another one goes to the same directory
        with pytest.raises(StoreUnusable) as raised:
            back_up(store, tmp_path / "copy")
        refused.append(str(raised.value))

    back_up(store, tmp_path / "copy", again)
    # Then that is refused, and the first one is whole
    assert "is an unfinished copy: it is being made" in refused[0]
    assert entries(tmp_path / "copy") == ENTRIES


def test_no_copy_is_taken_that_the_system_reports_as_empty(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a system whose copy_file_range says that it has copied 0 bytes
    monkeypatch.setattr(os, "copy_file_range", lambda *_arguments: 0)
    back_up(store, tmp_path / "copy")
    assert entries(tmp_path / "copy") == ENTRIES
