"""The lock files of a data directory: which process uses it, writes an image, or makes a backup.

Rule. While a backup is made, the store removes no file that it does not need any more. The backup has the lock
      shared, a removal has it alone, and neither waits while a removal runs for more than some milliseconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from headwater.journal.regular import open_regular

LOCK_NAME = "headwater.lock"
IMAGE_LOCK_NAME = "checkpoint.lock"
BACKUP_LOCK_NAME = "backup.lock"


def holder_of(lock: int) -> str:
    """Return which process has this lock, for messages."""
    holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
    return f"process {holder}" if holder else "another process"


@contextlib.contextmanager
def removable(path: str) -> Iterator[bool]:
    """Return whether files may be removed while the context is open, given the path of the lock of backups."""
    try:
        lock = open_regular(path, os.O_RDWR)
    except FileNotFoundError:
        # The first backup creates it: a full disk must not prevent a removal.
        yield True
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        free = False
    else:
        free = True
    try:
        yield free
    finally:
        os.close(lock)


@contextlib.contextmanager
def held_for_backup(path: str) -> Iterator[None]:
    """Keep a store from removing files, given the path of the lock of backups. Waits for a removal that runs."""
    lock = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)
