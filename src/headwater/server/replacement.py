"""Replaces whole files: the configuration, and the users, whose file holds password hashes.

    .headwater.conf.1f3a90cc2b.new ── write, fsync ──▶ rename ──▶ headwater.conf, fsync of the directory

Rule 1. A crash leaves the old file or the new one, never a mixture or a part.
Rule 2. Only the owner can read the new file while it is written. Then the new file gets the old file's owner,
        group and permissions; without an old file, only the owner can read it. If the group cannot be set, the
        group gets no permissions.
Rule 3. The new file is created, never opened: an existing file or symbolic link is not written to.
Rule 4. The writer holds a lock on the new file. A file without a lock is left over from a crash; it
        is removed before the next replacement and at the next start. After an error it is removed
        immediately.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
from pathlib import Path

from headwater.journal.disk.system import sync_directory

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def replace_file(path: Path, data: bytes) -> None:
    """Replace the file ``path`` durably. An `OSError` before the rename leaves the old file unchanged."""
    remove_unfinished(path)
    temporary, descriptor = _create_temporary(path)
    try:
        with os.fdopen(descriptor, "wb") as file:  # holds the lock until it is closed
            file.write(data)
            file.flush()
            _take_over(descriptor, path)
            os.fsync(descriptor)
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def remove_unfinished(path: Path) -> None:
    """Remove the temporary files that crashes have left during replacements of ``path``. Skip those in use,
    and those that this process may not remove."""
    unfinished = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{10}}\.new")
    with contextlib.suppress(OSError):
        for found in [each for each in path.parent.iterdir() if unfinished.fullmatch(each.name)]:
            with contextlib.suppress(OSError):
                _remove_if_free(found)


def _remove_if_free(path: Path) -> None:
    """Remove an unlocked regular file. Raises `BlockingIOError` if its writer is alive, `OSError` if it is
    a symbolic link or may not be opened or removed."""
    descriptor = os.open(path, _LOOK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _create_temporary(path: Path) -> tuple[Path, int]:
    """Create an empty file in the directory of ``path``, locked and accessible only to its owner."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(5)}.new")
        descriptor = os.open(temporary, _CREATE, 0o600)
        try:
            # On a file system without locks it is enough that the file is new.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return temporary, descriptor
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        os.close(descriptor)  # another process removed it as unfinished before it was locked


def _take_over(descriptor: int, path: Path) -> None:
    """Give the new file the old one's owner, group and permissions, as far as this process may."""
    try:
        old = path.stat()
    except FileNotFoundError:
        return
    mode = stat.S_IMODE(old.st_mode) & 0o777
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        for owner in (old.st_uid, -1):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, owner, old.st_gid)
                break
        if os.fstat(descriptor).st_gid != old.st_gid:
            mode &= ~stat.S_IRWXG
    with contextlib.suppress(PermissionError):  # CIFS and vfat have no permissions
        os.fchmod(descriptor, mode)
