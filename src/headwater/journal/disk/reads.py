"""Positional reads of data files by any thread. `headwater.testing.files` has an equivalent in memory.

Rule 1. Any thread may call any function, even while another thread writes, closes or removes the file. A
        file that is read keeps its descriptor until the read ends.
Rule 2. `DiskReads.cached` never waits for a disk: it asks the system for pages in memory only
        (RWF_NOWAIT). If the file system does not support this, the file is read directly if the file system is
        in memory (tmpfs, according to /proc/self/mountinfo); otherwise nothing counts as cached. Only opening a
        file that is not open may wait.
Rule 3. At most `OPEN_FILES` descriptors are kept, those used last; each read in progress may have one more.
Rule 4. Errors of the system are raised unchanged, as `OSError`. The size of a file bounds the memory that is
        allocated for a read of more than `_SMALL_BYTES`.
Rule 5. A child created by fork reads nothing: its copies of the descriptors are closed as soon as it runs.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from headwater.common.forks import FORKS
from headwater.errors import ForkedStore
from headwater.journal.disk.page_cache import NOWAIT
from headwater.journal.disk.regular import open_regular
from headwater.journal.disk.system import file_system

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # page_cache_c.pxd has it in C
    from headwater.journal.disk.page_cache import read_cached

OPEN_FILES = 64
"""Maximum number of files that stay open for reading. 64 segments have 4 GiB. Opening a file takes 5 µs if its
name is in memory."""

_SMALL_BYTES = 1024 * 1024
"""Maximum size of a read for which memory is allocated without asking for the size of the file, in bytes."""
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM}
"""Errors of systems that do not know RWF_NOWAIT. Older filters of containers refuse it with EPERM."""
_IN_MEMORY = {"tmpfs", "ramfs"}


class FileReads(Protocol):
    """Reads files of one directory at any position. ``name`` is a file's name, without a path."""

    def at(self, name: str, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` on, or fewer if the file ends before."""
        ...

    def cached(self, name: str, offset: int, length: int) -> bytes | None:
        """Return ``length`` bytes from ``offset`` on without waiting for a disk; None if any is not in memory."""
        ...

    def ahead(self, name: str, offset: int, length: int) -> None:
        """Ask the system to read these bytes soon. The system may ignore the request."""
        ...

    def size(self, name: str) -> int:
        """Return the size of the file in bytes."""
        ...


class _OpenFile:
    """A file that is open for reading. It is closed when ``dropped`` is set and ``users`` is 0."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.dropped = False
        self.in_memory: bool | None = None
        self.nowait = bool(NOWAIT)
        self.users = 1


class DiskReads:
    """`FileReads` in a directory of the file system.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     _ = Path(directory, "notes").write_bytes(b"abcdef")
    ...     reads = DiskReads(directory)
    ...     reads.at("notes", 2, 3), reads.cached("notes", 4, 9), reads.size("notes")
    ...     reads.close()
    (b'cde', None, 6)
    """

    def __init__(self, directory: str | os.PathLike[str], *, most: int = OPEN_FILES) -> None:
        self._directory = Path(directory)
        self._most = most
        self._pid = os.getpid()
        self._generation = FORKS.generation
        self._mutex = threading.Lock()
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._closings = 0
        _READS.add(self)

    # --- reading --------------------------------------------------------------------------------

    def at(self, name: str, offset: int, length: int) -> bytes:
        file = self._taken(name)
        try:
            length = min(length, os.fstat(file.descriptor).st_size - offset)
            return _read(file.descriptor, offset, length) if length > 0 else b""
        finally:
            self._leave(file)

    def cached(self, name: str, offset: int, length: int) -> bytes | None:
        self._check_process()
        if length <= _SMALL_BYTES:
            with self._mutex:
                # This does not wait for the disk, so it may hold the mutex, and the file needs no count of users.
                file = self._open.get(name)
                if file is not None and file.nowait:
                    self._open.move_to_end(name)
                    found = _read_nowait(file, offset, length)
                    if file.nowait:
                        return found
        return self._cached_of(self._taken(name), offset, length)

    def _cached_of(self, file: _OpenFile, offset: int, length: int) -> bytes | None:
        try:
            # The length may be wrong and huge. For a small one, the check of the result is enough.
            large = length > _SMALL_BYTES
            if large and offset + length > os.fstat(file.descriptor).st_size:
                return None
            if file.nowait:
                found = _read_nowait(file, offset, length)
                if file.nowait:
                    return found
            if file.in_memory is None:
                file.in_memory = file_system(file.descriptor) in _IN_MEMORY
            if not file.in_memory:
                return None
            found = _read(file.descriptor, offset, length)
            return found if len(found) == length else None
        finally:
            self._leave(file)

    def ahead(self, name: str, offset: int, length: int) -> None:
        if hasattr(os, "posix_fadvise"):
            file = self._taken(name)
            try:
                os.posix_fadvise(file.descriptor, offset, length, os.POSIX_FADV_WILLNEED)
            except OSError:
                pass  # it is a hint
            finally:
                self._leave(file)

    def size(self, name: str) -> int:
        file = self._taken(name)
        try:
            return os.fstat(file.descriptor).st_size
        finally:
            self._leave(file)

    # --- descriptors ----------------------------------------------------------------------------

    def open_files(self) -> int:
        """Return the number of files that are open for reading."""
        return len(self._open)

    def close(self, name: str | None = None) -> None:
        """Close a file (None: all files) after the reads in progress."""
        with self._mutex:
            self._closings += 1
            names = list(self._open) if name is None else [name]
            for one in names:
                self._drop(self._open.pop(one, None))

    def _taken(self, name: str) -> _OpenFile:
        """Return the file, opened if necessary, with one more user."""
        self._check_process()
        with self._mutex:
            found = self._open.get(name)
            if found is not None:
                found.users += 1
                self._open.move_to_end(name)
                return found
            closings = self._closings
        # Opening may wait for the disk; other threads do not wait meanwhile.
        made = _OpenFile(open_regular(str(self._directory / name), os.O_RDONLY))
        with self._mutex:
            if closings != self._closings or name in self._open:
                # The file may have been removed or opened by another thread: this descriptor is used once.
                made.dropped = True
                return made
            self._open[name] = made
            if len(self._open) > self._most:
                self._drop(self._open.popitem(last=False)[1])
            return made

    def _check_process(self) -> None:
        if FORKS.generation != self._generation:
            raise ForkedStore(
                f"the store in {self._directory} belongs to process {self._pid}, and this process is a "
                "fork of it. Open the store after the fork, or connect to it over a socket."
            )

    def _leave(self, file: _OpenFile) -> None:
        with self._mutex:
            file.users -= 1
            if file.dropped and not file.users:
                os.close(file.descriptor)

    @staticmethod
    def _drop(file: _OpenFile | None) -> None:
        if file is not None:
            file.dropped = True
            if not file.users:
                os.close(file.descriptor)

    def forget(self) -> None:
        """Close the descriptors that a fork copied. Threads that were reading do not exist in the child, and
        the mutex may be locked by one of them."""
        self._mutex = threading.Lock()
        for file in self._open.values():
            os.close(file.descriptor)
        self._open.clear()


def _read(descriptor: int, offset: int, length: int) -> bytes:
    data = os.pread(descriptor, length, offset)
    if len(data) == length:
        return data
    parts = [data]
    done = len(data)
    # The system reads at most 2 GiB in one call, and less on a signal.
    while done < length and parts[-1]:
        parts.append(os.pread(descriptor, length - done, offset + done))
        done += len(parts[-1])
    return b"".join(parts)


def _read_nowait(file: _OpenFile, offset: int, length: int) -> bytes | None:
    """Return the bytes if all of them are in memory, else None. Clears ``file.nowait`` if the file system cannot
    tell."""
    try:
        return read_cached(file.descriptor, offset, length)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        file.nowait = False
        return None


_READS: WeakSet[DiskReads] = WeakSet()


def _close_after_fork() -> None:
    # This runs before `headwater.journal.disk.files` closes its files, because that module imports this one. So
    # the mutexes are usable when it does.
    for reads in list(_READS):
        reads.forget()
    _READS.clear()


os.register_at_fork(after_in_child=_close_after_fork)
