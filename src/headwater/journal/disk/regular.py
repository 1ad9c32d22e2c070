"""Opens data files: only regular files, never through a symbolic link, and for writing only with a single name.

Rule 1. The last part of a path is never followed: a symbolic link in place of a data file is refused,
        wherever it points.
Rule 2. The opened file is checked, not its name: a FIFO, a device or a socket is refused, and opening one
        does not block. A file with a second name (a hard link) is not opened for writing, because it may belong
        elsewhere.
Rule 3. A new file is created, never reused: an existing file of that name is removed, not written to.
Rule 4. A directory that every user may write to is refused: any of them could replace its files.

Precedents: PostgreSQL refuses a data directory that other users can access (checkDataDir); OpenSSH refuses
a home directory that other users can write to (StrictModes).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path

from headwater.errors import StoreUnusable

MANIFEST_NAME = "MANIFEST"
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

_REMEDIES = {
    errno.ENOSPC: "Free some space there",
    errno.EDQUOT: "Free some space there",
    errno.EACCES: "Give the process write permission there",
    errno.EPERM: "Give the process write permission there",
    errno.EROFS: "Mount its file system with write permission",
} | dict.fromkeys(
    [errno.ELOOP, errno.ENAMETOOLONG, errno.EEXIST, errno.ENOENT, errno.ENOTDIR], "Check the path"
)


def open_regular(path: str, flags: int) -> int:
    """Open the regular file ``path`` and return its descriptor. ``os.O_CREAT`` creates it if necessary.

    Raises `StoreUnusable` if it is not regular, or is opened to write and has hard links; otherwise `OSError`.
    """
    try:
        descriptor = os.open(path, flags | _ALWAYS, 0o600)
    except OSError as error:
        if error.errno != errno.ENOENT:
            _refuse(path, _mode_of(path), links=1)
        raise
    try:
        found = os.fstat(descriptor)
        # Reading changes no other file.
        writes = flags & (os.O_WRONLY | os.O_RDWR)
        _refuse(path, found.st_mode, links=found.st_nlink if writes else 1)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_regular(path: str) -> int:
    """Create a file, replacing any file of that name, and return its descriptor. Raises `OSError`."""
    remove_regular(path, missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _ALWAYS, 0o600)


def remove_regular(path: str, *, missing_ok: bool = False) -> None:
    """Remove a file. Raises `StoreUnusable` if it is a directory, and `OSError` if it cannot be removed."""
    try:
        Path(path).unlink(missing_ok=missing_ok)
    except IsADirectoryError:
        _refuse(path, stat.S_IFDIR, links=1)


def check_directory(directory: Path) -> None:
    """Raise `StoreUnusable` if every user of this machine may write to ``directory``."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & stat.S_IWOTH:
        # A sticky directory is shared on purpose, like /tmp: its permissions should not be changed.
        solution = f"Run chmod o-w {directory}, or choose another directory."
        if mode & stat.S_ISVTX:
            solution = f"Choose another directory, such as {directory / 'headwater'}."
        raise StoreUnusable(
            f"the data directory {directory} can be written by every user (mode {mode:04o}), who could "
            f"replace the files in it. {solution}"
        )


def remedy(error: OSError) -> str:
    """Return a sentence that says what to do if the system refuses a directory or a file in it with ``error``."""
    first = _REMEDIES.get(
        error.errno or 0, "Free some space or give the process write permission there"
    )
    return f"{first}, or choose another directory."


def check_link(directory: Path) -> None:
    """Raise `StoreUnusable` if ``directory`` is a symbolic link to nothing, `OSError` if it cannot be resolved."""
    try:
        leads_to = directory.readlink()
    except OSError:
        return  # not a link
    try:
        directory.stat()
    except FileNotFoundError:
        raise StoreUnusable(
            f"{directory} is a symbolic link to {leads_to}, which does not exist. Check the path."
        ) from None


def check_readable(directory: Path) -> None:
    """Raise `StoreUnusable` if ``directory`` is missing, is not a directory, or may not be read."""
    try:
        check_link(directory)
        os.scandir(directory).close()
    except FileNotFoundError:
        raise StoreUnusable(f"there is no directory {directory}. Check the path.") from None
    except NotADirectoryError:
        raise StoreUnusable(
            f"{directory} is not a directory. Name the directory that has the file {MANIFEST_NAME}."
        ) from None
    except OSError as error:
        what = (
            "Run this as a user who may list it, or give this user the right to (chmod)."
            if isinstance(error, PermissionError)
            else remedy(error)
        )
        raise StoreUnusable(
            f"the directory {directory} cannot be read: [Errno {error.errno}] {error.strerror}. {what}"
        ) from error


def has_store(directory: Path) -> bool:
    """Return whether a store was ever started in ``directory``."""
    return (directory / MANIFEST_NAME).exists() or any(directory.glob("journal-*"))


def check_not_of_redis(directory: Path, names: Collection[str]) -> None:
    """Raise `StoreUnusable` if ``directory`` has files of Redis (RDB files, ``names``) but no store."""
    try:
        found = sorted(path.name for path in directory.iterdir())
    except OSError:
        return  # opening the directory will report this
    theirs = [name for name in found if name in names or name.endswith(".rdb")]
    if theirs and not has_store(directory):
        raise StoreUnusable(
            f"{directory} has {', '.join(theirs)}: it is a data directory of Redis or Valkey, and a store that begins there "
            "would be empty. Choose another directory; to take the data over, start that server as well and copy the keys "
            "with MIGRATE, or with DUMP and RESTORE."
        )


def _mode_of(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return stat.S_IFREG  # the system's error says more


def _refuse(path: str, mode: int, *, links: int) -> None:
    """Raise `StoreUnusable` if the mode and number of links are not those of a regular file with one name."""
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
        raise StoreUnusable(
            f"{path} is {kind}; a data directory may contain regular files only. Remove it if it does not "
            "belong there, or choose another directory."
        )
    if links > 1:
        raise StoreUnusable(
            f"{path} has {links} names (hard links), so writing to it would change another file. Replace it "
            "with a copy (cp, then mv), or choose another directory."
        )
