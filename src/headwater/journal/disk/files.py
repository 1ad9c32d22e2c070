"""All access to data files. `headwater.testing.files.CrashableFiles` is an equivalent in memory.

Rule 1. `Files` has all operations of a file system that the journal needs. Only backups access
        data files in another way (copies.py).
Rule 2. A file is created with its full size, so that later writes need no new space.
Rule 3. `sync` makes the bytes of a file durable. Its name is durable only after `sync_directory`. After `lock`,
        which opens the directory, an error of `sync_directory` always means that fsync has failed.
Rule 4. One process at a time locks a directory to write, or any number to read. Without `lock`, a file that is
        read is opened for reading only. A child created by fork has no lock and writes nothing: its copies of the
        descriptors are closed as soon as it runs.
Rule 5. Errors of the system are raised unchanged, as `OSError`; the journal interprets them. Only `lock` and
        `lock_to_read` raise errors about the directory as a whole: `StoreInUse`, `StoreUnusable`.
Rule 6. Only regular files are opened (`headwater.journal.disk.regular`); otherwise `StoreUnusable` is raised.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from headwater.common.clock import Clock, SystemClock
from headwater.common.log_limit import LimitedLog
from headwater.errors import ForkedStore, StoreUnusable
from headwater.journal.disk import locks
from headwater.journal.disk.content import Content
from headwater.journal.disk.reads import DiskReads, FileReads
from headwater.journal.disk.regular import (
    check_directory,
    check_link,
    check_readable,
    create_regular,
    open_regular,
    remedy,
    remove_regular,
)
from headwater.journal.disk.system import (
    allocate,
    open_directory,
    read_into,
    sync_directory,
    sync_file,
    sync_names,
    used_bytes,
)

SLOW_FSYNC_SECONDS = 1.0
"""An fsync that takes longer is logged, because `appendfsync everysec` should lose at most the last second."""
_log = logging.getLogger("headwater.journal")

_UNKNOWN_BYTES = 1 << 62

Bytes = bytes | bytearray | memoryview


class Files(Protocol):
    """The files of a directory, as the journal uses them. ``name`` is the name of a file in it, without a path."""

    @property
    def reads(self) -> FileReads:
        """Reader of files at any position, for any thread."""
        ...

    def path(self, name: str) -> str:
        """Return the path of ``name`` for messages."""
        ...

    def lock(self) -> None:
        """Lock the directory, creating it if necessary. Raises `StoreInUse` if another process has locked
        it."""
        ...

    def lock_to_read(self) -> None:
        """Keep other processes from writing until `unlock`. Writes nothing; logs a warning if it cannot lock.
        Raises `StoreInUse` if a process writes there, and `StoreUnusable` if the directory cannot be read."""
        ...

    def unlock(self) -> None:
        """Close every file, and unlock the directory if it is locked."""
        ...

    def lock_images(self) -> None:
        """Wait until no other process writes images, and keep others from doing so. The directory must exist."""
        ...

    def unlock_images(self) -> None:
        """Let another process write images. Does nothing if `lock_images` was not called."""
        ...

    def removable(self) -> AbstractContextManager[bool]:
        """Return whether the store may remove files while the context is open: False if a backup copies them."""
        ...

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        ...

    def content(self, name: str) -> Content:
        """Return the content of the file as it is now."""
        ...

    def read(self, name: str, limit: int, offset: int = 0) -> memoryview:
        """Return ``limit`` bytes of the file from ``offset`` on, or fewer if the file ends before."""
        ...

    def create(self, name: str, size: int) -> None:
        """Create a file of ``size`` zeros with all its space allocated, replacing any file of that name."""
        ...

    def allocate(self, name: str, size: int) -> None:
        """Allocate space for the first ``size`` bytes. New bytes read as zeros."""
        ...

    def write(self, name: str, offset: int, data: Bytes) -> None:
        """Write ``data`` at ``offset``."""
        ...

    def truncate(self, name: str, size: int) -> None:
        """Shorten a file to ``size`` bytes."""
        ...

    def sync(self, name: str) -> None:
        """Make the bytes and the size of the file durable before returning."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing any file with the new name."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file."""
        ...

    def sync_directory(self) -> None:
        """Make all created, changed and removed names durable before returning."""
        ...

    def close(self, name: str) -> None:
        """Close a file that is not needed for now."""
        ...

    def free_bytes(self) -> int:
        """Return the approximate number of bytes that can still be allocated."""
        ...


class DiskFiles:
    """`Files` in a directory of the file system.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     files = DiskFiles(directory)
    ...     files.lock()
    ...     files.create("notes", 8)
    ...     files.write("notes", 2, b"abc")
    ...     files.sync("notes")
    ...     content = bytes(files.read("notes", 100))
    ...     files.unlock()
    >>> content
    b'\\x00\\x00abc\\x00\\x00\\x00'
    """

    def __init__(self, directory: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self.directory = Path(directory).absolute()
        self._clock = clock if clock is not None else SystemClock()
        self._log = LimitedLog(_log, monotonic=self._clock.monotonic)
        self._pid = os.getpid()
        self._lock: int | None = None
        self._names: int | None = None
        """Descriptor of the directory while it is locked to write; otherwise None."""
        self._image_lock: int | None = None
        self._open: dict[str, int] = {}
        self._open_to_read: dict[str, int] = {}
        self.reads = DiskReads(self.directory)
        _OPEN.add(self)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    # --- the directory --------------------------------------------------------------------------

    def lock(self) -> None:
        """Lock the directory.

        Raises `StoreInUse`, with the id of the process that has locked it if that is known, and `StoreUnusable`
        if the directory cannot be created, written or locked, or if every user may write to it.
        """
        self._refuse_after_fork()
        assert self._lock is None, "locked twice"
        try:
            check_link(self.directory)
            self.make_directory()
            check_directory(self.directory)
            lock = open_regular(self.path(locks.LOCK_NAME), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = locks.holder_of(lock)
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                holder = "a process that reads it, such as headwater check"
            os.close(lock)
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise StoreUnusable(
                    f"{self.path(locks.LOCK_NAME)} cannot be locked: {_reason(error)}. Choose a data "
                    "directory on a file system with flock."
                ) from error
            raise locks.in_use(str(self.directory), holder) from error
        try:
            self._names = open_directory(self.directory)
        except OSError as error:
            os.close(lock)
            raise self._unusable(error) from error
        self._lock = lock
        self._sign(lock)

    def _sign(self, lock: int) -> None:
        """Write the id of this process into a lock file, for information only. Errors are ignored: a full disk
        must not prevent a store from starting."""
        with contextlib.suppress(OSError):
            os.ftruncate(lock, 0)
            os.pwrite(lock, b"%d\n" % self._pid, 0)

    def lock_to_read(self) -> None:
        self._refuse_after_fork()
        assert self._lock is None, "locked twice"
        check_readable(self.directory)
        self._lock = locks.lock_to_read(self.path(locks.LOCK_NAME), wait=False)

    def _unusable(self, error: OSError) -> StoreUnusable:
        return StoreUnusable(
            f"the data directory {self.directory} cannot be used: {_reason(error)}. {remedy(error)}"
        )

    def make_directory(self) -> None:
        """Create the directory and make its name durable, because the files in it depend on its name."""
        missing = [path for path in self.directory.parents if not path.exists()]
        there = self.directory.is_dir()
        self.directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        for path in missing:
            sync_directory(path.parent)
        try:
            sync_directory(self.directory.parent)
        except OSError:
            # The parent of an existing directory may belong to another user, and be unreadable.
            if not there:
                raise

    def unlock(self) -> None:
        for name in [*self._open, *self._open_to_read]:
            self.close(name)
        self.reads.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._names is not None:
            os.close(self._names)
            self._names = None
        self.unlock_images()

    def lock_images(self) -> None:
        self._refuse_after_fork()
        assert self._image_lock is None, "locked twice"
        path = self.path(locks.IMAGE_LOCK_NAME)
        lock = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _log.warning(
                    "waiting for %s, which writes an image (%s)", locks.holder_of(lock), path
                )
                fcntl.flock(lock, fcntl.LOCK_EX)
        except BaseException:
            os.close(lock)
            raise
        self._image_lock = lock
        self._sign(lock)

    def unlock_images(self) -> None:
        if self._image_lock is not None:
            os.close(self._image_lock)
            self._image_lock = None

    def removable(self) -> AbstractContextManager[bool]:
        return locks.removable(self.path(locks.BACKUP_LOCK_NAME))

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def sync_directory(self) -> None:
        self._refuse_after_fork()
        if self._names is not None:
            sync_names(self._names)
        else:  # the helper of a checkpoint, which does not lock the directory
            sync_directory(self.directory)

    def free_bytes(self) -> int:
        found = os.statvfs(self.directory)
        if not found.f_blocks:
            # The file system does not report its size: it is in memory without a limit, or a FUSE without statfs.
            return _UNKNOWN_BYTES
        return found.f_bavail * found.f_frsize

    # --- files ----------------------------------------------------------------------------------

    def content(self, name: str) -> Content:
        descriptor = self._read_descriptor(name)
        size = os.fstat(descriptor).st_size
        return Content(size, used_bytes(descriptor, size), partial(self._read_into, name))

    def read(self, name: str, limit: int, offset: int = 0) -> memoryview:
        data = memoryview(bytearray(limit))
        return data[: self._read_into(name, data, offset)].toreadonly()

    def _read_into(self, name: str, data: memoryview, offset: int) -> int:
        return read_into(self._read_descriptor(name), data, offset)

    def create(self, name: str, size: int) -> None:
        self._refuse_after_fork()
        self.close(name)
        self._open[name] = create_regular(self.path(name))
        self.allocate(name, size)

    def allocate(self, name: str, size: int) -> None:
        allocate(self._descriptor(name), size)

    def write(self, name: str, offset: int, data: Bytes) -> None:
        descriptor = self._descriptor(name)
        done, wanted = os.pwrite(descriptor, data, offset), len(data)
        if done < wanted:
            # The system writes at most 2 GiB in one call, and less on a signal or a full disk.
            with memoryview(data) as rest:
                while done < wanted:
                    done += os.pwrite(descriptor, rest[done:], offset + done)

    def truncate(self, name: str, size: int) -> None:
        os.ftruncate(self._descriptor(name), size)

    def sync(self, name: str) -> None:
        descriptor, began = self._descriptor(name), self._clock.monotonic()
        sync_file(descriptor)
        took = self._clock.monotonic() - began
        if took > SLOW_FSYNC_SECONDS:
            self._log.warning(
                "an fsync of %s took %.1f seconds; is the disk busy?", self.path(name), took
            )

    def rename(self, old: str, new: str) -> None:
        self._refuse_after_fork()
        (self.directory / old).rename(self.directory / new)
        self.close(new)
        written = self._open.pop(old, None)
        self.close(old)
        if written is not None:
            self._open[new] = written

    def remove(self, name: str) -> None:
        self._refuse_after_fork()
        remove_regular(self.path(name))
        self.close(name)

    def close(self, name: str) -> None:
        self.reads.close(name)
        for opened in (self._open, self._open_to_read):
            descriptor = opened.pop(name, None)
            if descriptor is not None:
                os.close(descriptor)

    def _descriptor(self, name: str) -> int:
        """Return the descriptor of a file. It is the same from the first write to the last fsync, because the
        system reports a failed write-back once to each descriptor that was open at that time."""
        descriptor = self._open.get(name)
        if descriptor is None:  # also after a fork, which closes all of them
            self._refuse_after_fork()
            descriptor = self._open[name] = open_regular(self.path(name), os.O_RDWR)
        return descriptor

    def _read_descriptor(self, name: str) -> int:
        """Return a descriptor for reading; if the directory is locked to write, one for writing as well."""
        if self._names is not None or name in self._open:
            return self._descriptor(name)
        descriptor = self._open_to_read.get(name)
        if descriptor is None:
            self._refuse_after_fork()
            descriptor = open_regular(self.path(name), os.O_RDONLY)
            self._open_to_read[name] = descriptor
        return descriptor

    def _refuse_after_fork(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedStore(
                f"the store in {self.directory} belongs to process {self._pid}, and this process is a "
                "fork of it. Open the store after the fork, or connect to it over a socket."
            )

    def _forget(self) -> None:
        """Close the descriptors that a fork copied. The parent keeps its lock: a lock ends with the last copy."""
        self.unlock()


def _reason(error: OSError) -> str:
    return f"[Errno {error.errno}] {error.strerror}"


_OPEN: WeakSet[DiskFiles] = WeakSet()


def _close_after_fork() -> None:
    for files in list(_OPEN):
        files._forget()  # noqa: SLF001 - one subject, one file
    _OPEN.clear()


os.register_at_fork(after_in_child=_close_after_fork)
