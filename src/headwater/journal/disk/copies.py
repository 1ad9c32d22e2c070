"""Copies data files for backups, even to another file system, and even while a store writes to the files.

Rule 1. A copy has the size of its file and all bytes up to the last one that is not zero; the rest is a hole.
        That end is determined before the first byte is copied, so bytes that a store appends meanwhile are left out.
Rule 2. A copy is complete, or an error is raised. copy_file_range is tried first, because some file systems share
        the blocks then. If it fails, or copies nothing, bytes are read and written, which reports the error.
        Known failures: EXDEV between two file systems (https://github.com/transmission/transmission/issues/3654),
        EPERM on CIFS and from filters of containers (https://github.com/libuv/libuv/pull/3354,
        https://github.com/rust-lang/rust/pull/51270), EINVAL on eCryptfs and ZFS, EOPNOTSUPP on RHEL 7
        (https://github.com/rust-lang/rust/pull/75428), EACCES on fuse-overlayfs
        (https://github.com/containers/fuse-overlayfs/issues/399), and 0 bytes without an error.
Rule 3. Permissions are given when a file is created. chmod fails on CIFS
        (https://github.com/nodejs/node/issues/31170) and vfat.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.journal.disk.regular import create_regular
from headwater.journal.disk.system import allocate, used_bytes

PIECE_BYTES = 64 * 1024 * 1024
"""Maximum size of a piece, in bytes. After each piece, a backup reports its progress and can be interrupted."""
_BUFFER_BYTES = 1024 * 1024


def copy_file(
    source: Path,
    destination: Path,
    *,
    limit: int | None = None,
    size: int | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> Generator[int]:
    """Copy a file durably, and replace ``destination``. With ``limit``, copy at most that many bytes; with
    ``size``, give the copy that size. Yield the number of bytes copied so far after each piece. Raises `OSError`
    with the name of the file."""
    with _naming(source):
        read = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _naming(destination):
            write = create_regular(str(destination))
        try:
            with _naming(source):
                # The size is read first: a rotation adds a last record and then cuts off the space after it.
                found = os.fstat(read).st_size
                end = used_bytes(read, found if limit is None else min(found, limit))
            at = 0
            while at < end:
                count = min(piece_bytes, end - at)
                copied = _copied_by_system(read, write, at, count)
                if not copied:
                    with _naming(source):
                        data = _read(read, at, min(count, _BUFFER_BYTES))
                    with _naming(destination):
                        _write(write, at, data)
                    copied = len(data)
                at += copied
                yield at
            with _naming(destination):
                _extend(write, found if size is None else size)
                os.fsync(write)
        finally:
            os.close(write)
    finally:
        os.close(read)


def _copied_by_system(read: int, write: int, at: int, count: int) -> int:
    """Let the system copy a part of a file. Return the number of copied bytes; 0 if the system cannot."""
    try:
        return os.copy_file_range(read, write, count, at, at)
    except (AttributeError, OSError):  # macOS does not have this function; see rule 2
        return 0


def _read(descriptor: int, at: int, count: int) -> bytes:
    data = os.pread(descriptor, count, at)
    if not data:
        raise OSError(errno.EIO, f"the file ended at {at} while it was copied")
    return data


def _write(descriptor: int, at: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], at + done)


def _extend(descriptor: int, size: int) -> None:
    """Let a file end at ``size``, with a hole if the file system has holes."""
    try:
        os.ftruncate(descriptor, size)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP}:
            raise
        allocate(descriptor, size)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in errors of the system."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
