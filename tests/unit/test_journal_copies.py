"""A file is copied completely, or the error says why: on systems and file systems that lack what is quick, too."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.journal.disk.copies import copy_file

MIB = 1024 * 1024
DATA = random.Random(3).randbytes(3 * MIB) + bytes(5000) + b"the end"
SIZE = 5 * MIB

Call = Callable[..., int]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of which the last part was never written, like one of the journal."""
    path = tmp_path / "source"
    path.write_bytes(DATA)
    os.truncate(path, SIZE)
    return path


def copied(source: Path, destination: Path, **options: int) -> list[int]:
    return list(copy_file(source, destination, **options))


def refusing(number: int) -> Call:
    def refuse(*_arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


def nothing(*_arguments: object) -> int:
    return 0


def in_small_parts(*arguments: int) -> int:
    read, write, count, at, to = arguments
    return os.pwrite(write, os.pread(read, min(count, 70_001), at), to)


def once_then_refused() -> Call:
    calls = iter([in_small_parts])

    def call(*arguments: int) -> int:
        return next(calls, refusing(errno.EXDEV))(*arguments)

    return call


@pytest.mark.parametrize(
    "call",
    [
        *[
            pytest.param(refusing(number), id=errno.errorcode[number])
            for number in (
                *(errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM),
                *(errno.EACCES, errno.EIO, errno.EBADF, errno.ETXTBSY, errno.EOVERFLOW),
            )
        ],
        pytest.param(nothing, id="0 bytes"),
        pytest.param(in_small_parts, id="a part"),
        pytest.param(once_then_refused(), id="EXDEV after a part"),
        pytest.param(None, id="missing"),
    ],
)
@pytest.mark.parametrize("piece_bytes", [64 * MIB, 300_000])
def test_a_copy_is_complete_without_copy_file_range(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Call | None,
    piece_bytes: int,
) -> None:
    # Given a system whose copy_file_range refuses, copies nothing or a part, or does not exist
    if call is None:
        monkeypatch.delattr(os, "copy_file_range")
    else:
        monkeypatch.setattr(os, "copy_file_range", call)
    # When a file is copied
    places = copied(source, tmp_path / "copy", piece_bytes=piece_bytes)
    # Then the copy is equal, and what was never written is a hole in it
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert (tmp_path / "copy").stat().st_blocks * 512 < SIZE - MIB
    assert places == sorted(places)
    assert places[-1] == len(DATA)


def test_a_file_that_becomes_shorter_is_an_error(source: Path, tmp_path: Path) -> None:
    # Given a copy that has begun
    copying = copy_file(source, tmp_path / "copy", piece_bytes=MIB)
    next(copying)
    # When the file is cut, then the copy is an error, which names the file
    os.truncate(source, 2 * MIB)
    with pytest.raises(OSError, match=r"ended at 2097152 while it was copied: .*/source"):
        list(copying)


def test_what_is_appended_meanwhile_is_left_out(source: Path, tmp_path: Path) -> None:
    copying = copy_file(source, tmp_path / "copy", piece_bytes=MIB)
    next(copying)
    with source.open("r+b") as file:
        file.seek(len(DATA))
        file.write(b"more")
    list(copying)
    assert (tmp_path / "copy").read_bytes() == DATA + bytes(SIZE - len(DATA))


def test_errors_of_a_write_name_the_copy(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a full disk, which copy_file_range reports as well
    for name in ("copy_file_range", "pwrite"):
        monkeypatch.setattr(os, name, refusing(errno.ENOSPC))
    # Then its error is that of the copy
    with pytest.raises(OSError, match=r"No space left on device: .*/copy'") as raised:
        copied(source, tmp_path / "copy")
    assert raised.value.errno == errno.ENOSPC


@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP])
def test_a_copy_has_its_size_where_files_cannot_be_extended(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "ftruncate", refusing(number))
    monkeypatch.setattr(os, "posix_fallocate", refusing(errno.EOPNOTSUPP))
    copied(source, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


def test_no_right_is_needed_to_change_permissions(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a file system that has none, such as CIFS or vfat
    for name in ("chmod", "fchmod", "chown", "fchown"):
        monkeypatch.setattr(os, name, refusing(errno.EPERM))
    copied(source, tmp_path / "copy")
    # Then a copy is made, and others cannot read it where there are permissions
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"\0", b"x", b"x\0"])
def test_small_files_are_copied(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    copied(tmp_path / "a", tmp_path / "b")
    copied(tmp_path / "a", tmp_path / "b")  # it is replaced
    assert (tmp_path / "b").read_bytes() == content
