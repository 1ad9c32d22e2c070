"""Files that are there after a power loss: what is written is synced, what is replaced is replaced
in one step, and a log's line is there whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside ``path``, which takes its place when the block ends well."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    yield beside
    if not beside.is_symlink():
        sync(beside)
    beside.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until what is written at ``path``, a file or a directory, is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sync_all(paths: Iterable[Path]) -> None:
    """The same for many. Together they share the disk's commits: 365 files one after the other
    took 1.4 s here, 0.05 s by sixteen threads."""
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(sync, paths))


def directories(files: Iterable[Path], top: Path) -> set[Path]:
    """``top`` and every directory between it and ``files``: all that a new file's name stands in."""
    found = {parent for file in files for parent in file.parents if parent.is_relative_to(top)}
    return {top, *found}


def append_line(path: Path, line: bytes) -> None:
    """Add ``line`` to a log and sync it; half a line that a killed write left is taken off first."""
    with path.open("ab") as log:
        if log.tell() and not _ends_whole(path):
            log.truncate(path.read_bytes().rfind(b"\n") + 1)
        log.write(line + b"\n")
        log.flush()
        os.fsync(log.fileno())
    sync(path.parent)


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a log, without the half one that a killed write left; none where there is no
    log."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    return text[: text.rfind(b"\n") + 1].splitlines()


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as log:
        log.seek(-1, os.SEEK_END)
        return log.read(1) == b"\n"
