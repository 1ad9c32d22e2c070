"""Operations on descriptors where systems differ: partial reads, holes, fdatasync, allocation of space."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_ZEROS = bytes(1024 * 1024)
_STEP_BYTES = 64 * 1024
_KNOW_HOLES = {"ext4", "xfs", "tmpfs"}
"""File systems whose SEEK_DATA finds all that was written, also what is still to be written to the disk. Others
have reported a hole there (https://github.com/openzfs/zfs/issues/15526)."""
_MOUNTS = Path("/proc/self/mountinfo")


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
    """Return the offset after the last byte that is not zero, searching from the end. What was allocated and
    never written is not read, if the file system knows it."""
    skips = file_system(descriptor) in _KNOW_HOLES
    buffer = bytearray(_STEP_BYTES)
    end = size
    while end > 0:
        start = max(0, end - len(buffer))
        if not (skips and _is_hole(descriptor, start, end)):
            if end - start < len(buffer):
                buffer = bytearray(end - start)
            read_into(descriptor, memoryview(buffer), start)
            if buffer != _ZEROS[: len(buffer)]:
                return start + len(buffer.rstrip(b"\0"))
        end = start
    return 0


def _is_hole(descriptor: int, start: int, end: int) -> bool:
    """Whether nothing was written between these offsets."""
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA) >= end
    except OSError as error:
        # There are no data from the offset to the end of the file.
        return error.errno == errno.ENXIO


def file_system(descriptor: int) -> str | None:
    """Return the type of the file system of a file, such as ``"ext4"``; None where the system does not tell."""
    device = os.fstat(descriptor).st_dev
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        place, _, kind = line.partition(" - ")
        if place.split()[2:3] == [wanted]:
            return next(iter(kind.split()), None)
    return None


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
