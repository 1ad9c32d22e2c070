"""The files of a data directory, seen from outside: their sizes, and their pages in the page cache.

    image-NNNNNN, segment-NNNNNN, journal-NNNNNN, MANIFEST      Headwater
    *.rdb, appendonlydir/                                       Redis and Valkey

Rule 1. A file may be removed at any time: one that has gone has no bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.storage.servers import Unmeasured

SEGMENTS: Final = "segment-*"
JOURNAL: Final = "journal-"

_PIECE: Final = 1 << 20
_BLOCK: Final = 512
"""The unit of ``st_blocks``."""


def regular_files(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory."""
    for folder, _, names in os.walk(directory):
        yield from (Path(folder, name) for name in names)


def allocated_bytes(directory: Path) -> int:
    """Return the disk space that the files occupy, with what is preallocated."""
    total = 0
    for path in regular_files(directory):
        try:
            total += path.stat().st_blocks * _BLOCK
        except FileNotFoundError:
            continue
    return total


def used_bytes(directory: Path) -> int:
    """Return the bytes that were written: those of a journal file end with its last byte that is not zero,
    because the rest is only preallocated."""
    total = 0
    for path in regular_files(directory):
        try:
            size = path.stat().st_size
            total += written_end(path, size) if path.name.startswith(JOURNAL) else size
        except FileNotFoundError:
            continue
    return total


def written_end(path: Path, size: int) -> int:
    """Return the offset behind the last byte of the file that is not zero."""
    with path.open("rb") as file:
        end = size
        while end > 0:
            begin = max(0, end - _PIECE)
            file.seek(begin)
            piece = file.read(end - begin).rstrip(b"\0")
            if piece:
                return begin + len(piece)
            end = begin
    return 0


def check_segments(directory: Path) -> None:
    """Raise `Unmeasured` unless the server has stored cold entries in segments."""
    if not any(path.stat().st_size for path in directory.glob(SEGMENTS)):
        raise Unmeasured(
            "the server has written no segment file, so no entry is cold: it keeps all of them in memory"
        )


def drop_pages(directory: Path) -> None:
    """Remove the pages of the segments from the page cache. What is not written yet is written first."""
    for path in directory.glob(SEGMENTS):
        try:
            with path.open("rb") as file:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except FileNotFoundError:
            continue


def read_pages(directory: Path) -> None:
    """Read the segments, so that their pages are in the page cache."""
    for path in directory.glob(SEGMENTS):
        try:
            with path.open("rb") as file:
                while file.read(_PIECE):
                    pass
        except FileNotFoundError:
            continue
