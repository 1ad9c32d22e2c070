"""Copies of data files, for backups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_PIECE_BYTES = 64 * 1024 * 1024


def write_file(path: Path, content: bytes) -> None:
    """Create a file with this content, durably. Raises `OSError`, also if it exists."""
    with path.open("xb") as write:
        os.fchmod(write.fileno(), 0o600)
        write.write(content)
        write.flush()
        os.fsync(write.fileno())


def copy_file(source: Path, destination: Path) -> None:
    """Copy a file with its size, durably. Parts that were never written stay holes."""
    with source.open("rb") as read, destination.open("xb") as write:
        os.fchmod(write.fileno(), 0o600)
        size = os.fstat(read.fileno()).st_size
        os.ftruncate(write.fileno(), size)
        for start, end in _written(read.fileno(), size):
            at = start
            while at < end:
                wanted = min(end - at, _PIECE_BYTES)
                count = os.copy_file_range(read.fileno(), write.fileno(), wanted, at, at)
                if count == 0:
                    break
                at += count
        os.fsync(write.fileno())


def _written(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that are not holes."""
    at = 0
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole follows
            return
        at = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, min(at, size)
