"""Operations on descriptors where systems differ: partial reads, fdatasync, allocation of space."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_ZEROS = bytes(1024 * 1024)


def read_into(descriptor: int, data: memoryview, offset: int) -> int:
    """Fill ``data`` from the file. Return how many bytes were read."""
    done = 0
    while done < len(data):
        # The system reads at most 2 GiB at once.
        count = os.preadv(descriptor, [data[done : done + (1 << 30)]], offset + done)
        if count == 0:
            break
        done += count
    return done


def used_bytes(descriptor: int, size: int) -> int:
    """Return the offset after the last byte that is not zero, searching from the end."""
    buffer = bytearray(len(_ZEROS))
    end = size
    while end > 0:
        start = max(0, end - len(buffer))
        if end - start < len(buffer):
            buffer = bytearray(end - start)
        read_into(descriptor, memoryview(buffer), start)
        if buffer != _ZEROS[: len(buffer)]:
            return start + len(buffer.rstrip(b"\0"))
        end = start
    return 0


def sync_file(descriptor: int) -> None:
    """Make the bytes and the size of a file durable."""
    # If there is no fdatasync (macOS), fsync does the same and more.
    getattr(os, "fdatasync", os.fsync)(descriptor)


def open_directory(path: Path) -> int:
    """Open a directory and return its descriptor."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = open_directory(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def allocate(descriptor: int, size: int) -> None:
    """Allocate space for the first ``size`` bytes of a file."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
                raise
        else:
            return
    # This file system cannot allocate space in advance. Writing zeros does.
    end = os.fstat(descriptor).st_size
    while end < size:
        end += os.pwrite(descriptor, _ZEROS[: size - end], end)
