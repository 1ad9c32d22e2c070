"""The lock files of a data directory, for processes that use it, write an image, or make a backup.

Rule 1. While a backup is made, the store does not remove files that it no longer needs. A backup holds the lock
        shared; a removal holds it exclusively. A removal does not wait, and a backup waits only for a removal.
Rule 2. A process that only reads a directory writes nothing there, not even a lock file. It opens the existing
        file for reading and takes a shared lock, which does not need write permission, not even on NFS (flock(2)).
        If that is impossible, it reads without a lock, and logs one warning.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from headwater.errors import StoreInUse
from headwater.journal.disk.regular import MANIFEST_NAME, open_regular

_log = logging.getLogger("headwater.journal")

LOCK_NAME = "headwater.lock"
IMAGE_LOCK_NAME = "checkpoint.lock"
BACKUP_LOCK_NAME = "backup.lock"


def holder_of(lock: int) -> str:
    """Return a name of the process that has this lock, for messages."""
    holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
    return f"process {holder}" if holder else "another process"


def in_use(directory: str, holder: str) -> StoreInUse:
    """Return the error for a directory that another process has locked."""
    return StoreInUse(
        f"the data directory {directory} is in use by {holder}. End that process, or "
        "connect to it, or choose another directory."
    )


def lock_to_read(path: str, *, wait: bool) -> int | None:
    """Lock an existing file together with other readers. Return its descriptor; None after a warning if the file
    is missing or cannot be locked. If a writer has locked it, wait (``wait``) or raise `StoreInUse`."""
    try:
        lock = open_regular(path, os.O_RDONLY)
    except OSError as error:
        _say_unlocked(path, error.strerror)
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        holder = holder_of(lock)
        os.close(lock)
        raise in_use(str(Path(path).parent), holder) from error
    except OSError as error:
        os.close(lock)
        _say_unlocked(path, error.strerror)
        return None
    return lock


@lru_cache(maxsize=128)
def _say_unlocked(path: str, reason: str) -> None:
    directory, name = Path(path).parent, Path(path).name
    if not os.access(directory / MANIFEST_NAME, os.R_OK):
        return  # this process cannot read a store there
    _log.warning(
        "%s is read without a lock (%s: %s): make sure that no server uses the directory meanwhile",
        directory,
        name,
        reason,
    )


@contextlib.contextmanager
def removable(path: str) -> Iterator[bool]:
    """Return whether files may be removed while the context is open. ``path`` is the path of the lock file for
    backups; the file is created if necessary."""
    try:
        lock = open_regular(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        yield True  # a full disk must not prevent a removal
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
    """Wait for a running removal, then keep the store from removing files. ``path`` is the backups' lock file."""
    lock = lock_to_read(path, wait=True)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)
