"""Only regular files of a data directory are opened, and no link leads out of it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import headwater
from headwater.errors import StoreUnusable
from headwater.journal.disk.files import DiskFiles
from headwater.journal.disk.locks import LOCK_NAME
from headwater.journal.format.batches import groups_of
from headwater.journal.log.journal import Journal
from headwater.testing.clock import ManualClock

DATA_FILES = [LOCK_NAME, "journal-000001", "journal-000002"]
UNFINISHED = "journal-000001.new"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Another user's file, outside of the data directory."""
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


def open_journal(data: Path) -> None:
    """Open and close a journal, as every way of opening a store does."""
    journal = Journal.open(DiskFiles(data), policy="always")
    for _group in groups_of(journal.batches()):
        pass
    journal.close()


def refusal(data: Path) -> str:
    with pytest.raises(StoreUnusable) as caught:
        open_journal(data)
    return str(caught.value)


@pytest.mark.parametrize("name", [*DATA_FILES, "journal-000009.new"])
def test_a_directory_in_place_of_a_data_file_is_refused(data: Path, name: str) -> None:
    open_journal(data)
    (data / name).unlink(missing_ok=True)
    (data / name).mkdir()
    assert refusal(data).startswith(f"{data / name} is a directory; ")


# --- links ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DATA_FILES)
def test_a_symbolic_link_in_place_of_a_data_file_is_refused(
    data: Path, victim: Path, name: str
) -> None:
    # Given a store with a link in place of one of its files
    open_journal(data)
    (data / name).unlink()
    (data / name).symlink_to(victim)

    # When it is opened
    said = refusal(data)

    # Then the error names the file, and the link's target is unchanged
    assert said.startswith(f"{data / name} is a symbolic link; ")
    assert victim.read_text() == "precious"
    assert (data / name).is_symlink()


@pytest.mark.parametrize("name", [LOCK_NAME, "journal-000001"])
def test_a_dangling_link_creates_no_file_at_its_target(
    data: Path, tmp_path: Path, name: str
) -> None:
    (data / name).symlink_to(tmp_path / "made")
    assert "is a symbolic link" in refusal(data)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("leftover", ["link", "file", "hard link"])
def test_a_leftover_in_place_of_an_unfinished_file_is_removed_and_not_written_to(
    data: Path, victim: Path, leftover: str
) -> None:
    # Given a leftover under the name of a file that is being created
    place = data / UNFINISHED
    if leftover == "link":
        place.symlink_to(victim)
    elif leftover == "hard link":
        place.hardlink_to(victim)
    else:
        place.write_bytes(b"half of a header")

    # When a journal is created there
    open_journal(data)

    # Then it is complete, and the other file is unchanged
    assert victim.read_text() == "precious"
    assert not place.exists()
    assert (data / "journal-000001").is_file()
    open_journal(data)


@pytest.mark.parametrize("name", DATA_FILES)
def test_a_data_file_with_a_second_name_is_refused(data: Path, tmp_path: Path, name: str) -> None:
    open_journal(data)
    (tmp_path / "other").hardlink_to(data / name)
    before = (tmp_path / "other").read_bytes()
    assert refusal(data).startswith(f"{data / name} has 2 names (hard links)")
    assert (tmp_path / "other").read_bytes() == before


# --- other kinds --------------------------------------------------------------------------------------


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [(os.mkfifo, "a FIFO"), (os.mkdir, "a directory"), (make_socket, "a socket")],
    ids=["fifo", "directory", "socket"],
)
@pytest.mark.parametrize("name", [LOCK_NAME, "journal-000001"])
def test_a_file_that_is_not_regular_is_refused_without_blocking(
    data: Path,
    name: str,
    make: Callable[[Path], None],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(data)  # a socket's path is short
    make(Path(name))
    signal.alarm(20)  # ends a test that waits for a writer of the FIFO
    try:
        assert refusal(data).startswith(f"{data / name} is {kind}; ")
    finally:
        signal.alarm(0)


# --- the directory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_directory_that_every_user_may_write_to_is_refused(data: Path, mode: int) -> None:
    data.chmod(mode)
    said = refusal(data)
    assert f"the data directory {data} can be written by every user (mode {mode:04o})" in said
    # /tmp and similar directories are shared on purpose, so the remedy is not to change them
    remedy = f"such as {data}/headwater." if mode & 0o1000 else f"Run chmod o-w {data}, or"
    assert remedy in said
    assert list(data.iterdir()) == []


def test_an_embedded_store_refuses_a_directory_that_every_user_may_write_to(data: Path) -> None:
    data.chmod(0o777)
    with pytest.raises(StoreUnusable, match="can be written by every user"):
        headwater.connect(f"headwater://{data}")


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o770, 0o775])
def test_a_directory_for_the_owner_and_a_group_is_used(data: Path, mode: int) -> None:
    data.chmod(mode)
    open_journal(data)


def test_a_new_directory_is_only_for_its_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_journal(tmp_path / "made")
    finally:
        os.umask(before)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "made").iterdir()} == {0o600}


def test_a_directory_may_be_reached_by_a_link(data: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(data)
    open_journal(tmp_path / "link")


# --- slow fsyncs ------------------------------------------------------------------------------------


def test_a_slow_fsync_is_logged_with_its_file_and_duration(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a disk with a chosen duration of an fsync
    clock, seconds = ManualClock(), 0.9
    monkeypatch.setattr(os, "fdatasync", lambda _descriptor: clock.advance(seconds))
    files = DiskFiles(data, clock=clock)
    files.lock()
    files.create("journal-000001", 10)
    files.sync("journal-000001")
    assert caplog.messages == []

    # When fsyncs take longer than a second, again and again
    seconds = 1.5
    for _ in range(100):
        files.sync("journal-000001")
    files.unlock()

    # Then it is logged, not a hundred times
    assert caplog.messages[0] == (
        f"an fsync of {data}/journal-000001 took 1.5 seconds; is the disk busy?"
    )
    assert 10 <= len(caplog.messages) <= 40
    assert any("more lines like this one were left out" in line for line in caplog.messages)
