"""Opens data files: regular files of one name only, never what a name may lead to elsewhere.

Rule 1. The last part of a path is never followed: a symbolic link in the place of a data file is
        refused, wherever it points.
Rule 2. What was opened is looked at, not its name: a FIFO, a device or a socket is refused, and opening
        one does not wait. So is a file with a second name (a hard link), which may be another file.
Rule 3. A new file is created, never taken over: what is in its place is removed, not written to.
Rule 4. A directory that every user may write to is refused: any of them could replace what is in it.

Precedents: PostgreSQL refuses a data directory with rights for others (checkDataDir); OpenSSH refuses
a home directory that others may write to (StrictModes).
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from headwater.errors import StoreUnusable

_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str, flags: int) -> int:
    """A descriptor of the regular file ``path``; with ``os.O_CREAT`` it is made if need be.

    Raises `StoreUnusable` for anything else in its place, `OSError` as the system does.
    """
    try:
        descriptor = os.open(path, flags | _ALWAYS, 0o600)
    except OSError as error:
        if error.errno != errno.ENOENT:
            _refuse(path, _mode_of(path), links=1)
        raise
    try:
        found = os.fstat(descriptor)
        _refuse(path, found.st_mode, links=found.st_nlink)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_regular(path: str) -> int:
    """A descriptor of a new file, in place of whatever has that name. Raises `OSError`."""
    remove_regular(path, missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _ALWAYS, 0o600)


def remove_regular(path: str, *, missing_ok: bool = False) -> None:
    """Remove what has that name. Raises `StoreUnusable` for a directory, `OSError` as the system does."""
    try:
        Path(path).unlink(missing_ok=missing_ok)
    except IsADirectoryError:
        _refuse(path, stat.S_IFDIR, links=1)


def check_directory(directory: Path) -> None:
    """Raises `StoreUnusable` when every user of this machine may write to ``directory``."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & stat.S_IWOTH:
        # A sticky directory is shared on purpose, as /tmp is: its rights are not to be changed.
        remedy = f"Run chmod o-w {directory}, or choose another directory."
        if mode & stat.S_ISVTX:
            remedy = f"Choose another directory, such as {directory / 'headwater'}."
        raise StoreUnusable(
            f"the data directory {directory} can be written by every user (mode {mode:04o}), who could "
            f"replace the files in it. {remedy}"
        )


def _mode_of(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return stat.S_IFREG  # it is the system's error that says more


def _refuse(path: str, mode: int, *, links: int) -> None:
    """Raises `StoreUnusable` for what is not a regular file with one name."""
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
        raise StoreUnusable(
            f"{path} is {kind}; a data directory holds regular files only, and nothing else is opened. "
            "Remove it if it does not belong there, or choose another directory."
        )
    if links > 1:
        raise StoreUnusable(
            f"{path} has {links} names (hard links), so writing to it would change another file. Put a "
            "copy in its place (cp, then mv), or choose another directory."
        )
