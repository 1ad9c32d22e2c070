"""Files that survive a power loss: writes are synced, files replaced in one step, logs whole. Also locks between processes."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from headwater.errors import HeadwaterError
from headwater.journal.disk.system import sync_directory

_TAIL_BYTES: Final = 64 * 1024


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path of this thread, which replaces ``path`` when the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    temporary.unlink(missing_ok=True)  # of a killed process with this id
    try:
        yield temporary
        if not temporary.is_symlink():
            sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


@contextmanager
def locked(lock: Path, error: Callable[[str], HeadwaterError]) -> Iterator[None]:
    """Lock the file ``lock``, created if missing. If another process has the lock, raise ``error(its id)``."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    number = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(number, 20).decode("ascii", "replace").strip() or "another process"
            raise error(holder) from None
        os.ftruncate(number, 0)
        os.pwrite(number, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(number)  # also releases the lock, as does any end of the process


def sync(path: Path) -> None:
    """Sync the contents of ``path``, a file or a directory, to disk."""
    if path.is_dir():
        sync_directory(path)
        return
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sync_all(paths: Iterable[Path]) -> None:
    """Sync many paths from several threads, which share the disk's commits: 365 files in 0.05 instead of 1.4 s."""
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(sync, paths))


def directories(files: Iterable[Path], top: Path) -> set[Path]:
    """Return ``top`` and every directory between ``top`` and ``files``: all that may contain new names."""
    found = {parent for file in files for parent in file.parents if parent.is_relative_to(top)}
    return {top, *found}


def append_line(path: Path, line: bytes) -> None:
    """Append ``line`` to a log and sync it, after removing a partial line that a killed write left."""
    with path.open("ab") as log:
        if log.tell() and not _ends_whole(path):
            with path.open("rb") as written:
                log.truncate(end_of_lines(written))
        log.write(line + b"\n")
        log.flush()
        os.fsync(log.fileno())
    sync(path.parent)


def whole_lines(path: Path) -> list[bytes]:
    """Return the complete lines of a log; an empty list if the log does not exist."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    return lines_of(text[: text.rfind(b"\n") + 1])


def lines_of(text: bytes) -> list[bytes]:
    """Return the lines of ``text``, without their newlines. The last line need not end with one.

    `str.splitlines` would also split at U+0085, U+2028 and U+2029, which JSON may contain unescaped.

    >>> lines_of('{"a": "one\\u2028line"}\\n{}\\n'.encode()) == ['{"a": "one\\u2028line"}'.encode(), b"{}"]
    True
    """
    lines = text.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def end_of_lines(log: BinaryIO) -> int:
    """Return the offset at which the last complete line of a log ends. Reads only the log's end."""
    at = log.seek(0, os.SEEK_END)
    while at > 0:
        begin = max(0, at - _TAIL_BYTES)
        log.seek(begin)
        place = log.read(at - begin).rfind(b"\n")
        if place >= 0:
            return begin + place + 1
        at = begin
    return 0


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as log:
        log.seek(-1, os.SEEK_END)
        return log.read(1) == b"\n"
