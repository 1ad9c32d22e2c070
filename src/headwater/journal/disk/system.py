"""Operations on descriptors where systems differ: partial reads, holes, fdatasync, allocation of space."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_ZEROS = bytes(1024 * 1024)
_STEP_BYTES = 64 * 1024
_KNOW_HOLES = {"ext4", "tmpfs"}
"""File systems whose SEEK_DATA finds all written bytes, including those that are not on the disk yet. Others have
reported a hole instead, as ZFS did (https://github.com/openzfs/zfs/issues/15526), or share extents between
copies of a file, where such data is not in an extent of the file itself."""
NOT_SUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors of systems and file systems that do not support an operation."""
_MOUNTS = Path("/proc/self/mountinfo")


def read_into(descriptor: int, data: memoryview, offset: int) -> int:
    """Fill ``data`` from the file. Return the number of bytes read."""
    done = 0
    while done < len(data):
        # The system reads at most 2 GiB in one call.
        count = _read_some(descriptor, data[done : done + (1 << 30)], offset + done)
        if count == 0:
            break
        done += count
    return done


def _read_some(descriptor: int, data: memoryview, offset: int) -> int:
    """Read into ``data`` without a copy if that is possible. Python calls preadv2, which older filters of containers
    refuse (https://github.com/docker-library/official-images/issues/16829)."""
    try:
        return os.preadv(descriptor, [data], offset)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in {*NOT_SUPPORTED, errno.EPERM}:
            raise
    found = os.pread(descriptor, len(data), offset)
    data[: len(found)] = found
    return len(found)


def used_bytes(descriptor: int, size: int) -> int:
    """Return the offset after the last byte that is not zero. Space that was allocated
    and never written is not read, if the file system can tell."""
    for start, end in reversed(_written(descriptor, size)):
        found = _end_between(descriptor, start, end)
        if found:
            return found
    return 0


def _end_between(descriptor: int, first: int, end: int) -> int:
    """Return the offset after the last byte in a range that is not zero, or 0 if all are zero."""
    buffer = bytearray(_STEP_BYTES)
    while end > first:
        start = max(first, end - len(buffer))
        if end - start < len(buffer):
            buffer = bytearray(end - start)
        read_into(descriptor, memoryview(buffer), start)
        if buffer != _ZEROS[: len(buffer)]:
            return start + len(buffer.rstrip(b"\0"))
        end = start
    return 0


def _written(descriptor: int, size: int) -> list[tuple[int, int]]:
    """Return the ranges of a file that may have been written, in order."""
    found: list[tuple[int, int]] = []
    if file_system(descriptor) not in _KNOW_HOLES:
        return [(0, size)]
    end = 0
    try:
        while end < size:
            # Range by range: tmpfs looks at each page of a hole, so a second search from within a hole is slow.
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
            found.append((start, min(end, size)))
    except OSError as error:
        if error.errno != errno.ENXIO:  # there is nothing but a hole up to the end
            return [(0, size)]
    return found


def file_system(descriptor: int) -> str | None:
    """Return the type of the file system of a file, such as ``"ext4"``; None if the system does not report it."""
    device = os.fstat(descriptor).st_dev
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.split("\n"):
        place, _, kind = line.partition(" - ")
        if place.split()[2:3] == [wanted]:
            return next(iter(kind.split()), None)
    return None


def sync_file(descriptor: int) -> None:
    """Make the bytes and the size of a file durable."""
    if hasattr(os, "fdatasync"):
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
        else:
            return
    # Without fdatasync, as on macOS, fsync does the same and more.
    os.fsync(descriptor)


def open_directory(path: Path) -> int:
    """Open a directory and return its descriptor."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = open_directory(path)
    try:
        sync_names(descriptor)
    finally:
        os.close(descriptor)


def sync_names(descriptor: int) -> None:
    """Make the names in an open directory durable, if its file system can do that. Others, such as CIFS before Linux
    4.17, keep names durable by themselves or not at all (https://github.com/borgbackup/borg/issues/1287). Precedent:
    PostgreSQL, fsync_fname_ext."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise


def allocate(descriptor: int, size: int) -> None:
    """Allocate space for the first ``size`` bytes of a file."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in {*NOT_SUPPORTED, errno.EPERM}:
                raise
        else:
            return
    # This file system cannot allocate space in advance. Writing zeros does.
    end = os.fstat(descriptor).st_size
    while end < size:
        end += os.pwrite(descriptor, _ZEROS[: size - end], end)
