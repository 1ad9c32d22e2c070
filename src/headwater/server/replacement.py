"""Replaces a file as a whole: configuration and users, which hold password hashes.

    .headwater.conf.1f3a90cc2b.new ── write, fsync ──▶ rename ──▶ headwater.conf, fsync of the directory

Rule 1. After any crash the old file or the new one is there, never half of one.
Rule 2. While it is written only the owner can read the new file. Then it gets owner, group and rights of
        the old one; without an old one it stays with its owner. Rights of a group that cannot be kept go.
Rule 3. The new file is created, never opened: a file or a symbolic link that is already there is not
        written to.
Rule 4. Its writer holds a lock on it. What nobody holds is left from a crash; it is removed before the
        next replacement and at the next start. An error removes it at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
from pathlib import Path

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` in place of the file ``path``, durably. Raises `OSError`; the old file stays then."""
    remove_unfinished(path)
    temporary, descriptor = _create_beside(path)
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
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def remove_unfinished(path: Path) -> None:
    """Remove what crashes have left of replacements of ``path``; what is in use, and what this process
    may not remove, stays."""
    unfinished = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{10}}\.new")
    with contextlib.suppress(OSError):
        for found in [each for each in path.parent.iterdir() if unfinished.fullmatch(each.name)]:
            with contextlib.suppress(OSError):
                _remove_if_free(found)


def _remove_if_free(path: Path) -> None:
    """Raises `BlockingIOError` when its writer lives, `OSError` for what is not a file of ours."""
    descriptor = os.open(path, _LOOK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _create_beside(path: Path) -> tuple[Path, int]:
    """A new empty file in the same directory, locked, for its owner only."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(5)}.new")
        descriptor = os.open(temporary, _CREATE, 0o600)
        try:
            with contextlib.suppress(
                OSError
            ):  # a file system without locks: it is new, that is enough
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return temporary, descriptor
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        os.close(descriptor)  # another process took it for abandoned before it was locked


def _take_over(descriptor: int, path: Path) -> None:
    """Give the new file owner, group and rights of the old one, as far as this process may."""
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
    os.fchmod(descriptor, mode)
