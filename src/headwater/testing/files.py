"""A directory in memory that can crash: an equivalent of `headwater.journal.disk.files.DiskFiles`.

Rule 1. Synced data survive a crash. Each other write may survive completely, in part (torn at any byte, or some
        sectors) or not at all, independently of the others. Likewise, each created, changed or removed name may
        survive or not. Only `sync` makes bytes durable, and only `sync_directory` makes names durable.
Rule 2. After a failed `sync`, the affected bytes can still be read but will never become durable,
        even if `sync` is called again; some of them may be durable already. Linux behaves like this.
Rule 3. A write that `fail` makes fail has written the first half of its data. One that lacks space writes nothing.
Rule 4. Every operation except reading adds a line to `transcript`, so that a missing fsync is visible as a
        difference from a test's expected text.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from random import Random

from headwater.errors import StoreInUse
from headwater.journal.disk.content import Content
from headwater.journal.disk.files import Bytes

SECTOR_BYTES = 512
_MOST_SUBSETS = 4096


@dataclass
class _Fault:
    operation: str
    passes: int
    errno: int
    times: int


class MemoryReads:
    """`headwater.journal.disk.reads.FileReads` of `CrashableFiles`. If ``cold`` is true, no byte counts as
    cached. ``failing`` holds file names with positions at which a read fails with EIO."""

    def __init__(self, files: CrashableFiles) -> None:
        self.cold = False
        self.failing: set[tuple[str, int]] = set()
        self._files = files

    def at(self, name: str, offset: int, length: int) -> bytes:
        if any(file == name and offset <= at < offset + length for file, at in self.failing):
            raise _error(errno.EIO)
        return self._files.part(name, offset, length)

    def cached(self, name: str, offset: int, length: int) -> bytes | None:
        found = self.at(name, offset, length)
        return None if self.cold or len(found) < length else found

    def ahead(self, name: str, offset: int, length: int) -> None:
        """Check that the file exists, and read nothing."""
        self._files.part(name, offset, min(length, 1))

    def size(self, name: str) -> int:
        return self._files.size(name)


class CrashableFiles:
    """`headwater.journal.disk.files.Files` in memory.

    ``capacity`` is the maximum total size of all files in bytes; None means unlimited. ``on_operation`` is called
    with the transcript line of each operation before the operation takes effect. It may call `crash_images` for
    the states that a crash at that moment may leave.

    >>> files = CrashableFiles()
    >>> files.lock(); files.create("a", 4); files.sync("a"); files.sync_directory()
    >>> files.write("a", 0, b"xy")
    >>> sorted({bytes(image.read("a")) for image in files.all_crash_images()})
    [b'\\x00\\x00\\x00\\x00', b'\\x00y\\x00\\x00', b'x\\x00\\x00\\x00', b'xy\\x00\\x00']
    >>> files.transcript[-2:]
    ['sync directory', 'write a at 0: 2 bytes']
    """

    def __init__(self, *, capacity: int | None = None, seed: int = 0) -> None:
        self.capacity = capacity
        self.transcript: list[str] = []
        self.on_operation: Callable[[str], None] | None = None
        self._random = Random(seed)
        self._names: dict[str, CrashableFile] = {}
        self._durable_names: dict[str, CrashableFile] = {}
        self._writes: list[Write] = []
        self._namings: list[Naming] = []
        self._faults: list[_Fault] = []
        self._locked = False
        self._mutex = threading.RLock()
        self.reads = MemoryReads(self)

    def path(self, name: str) -> str:
        return f"memory:/{name}"

    # --- faults ---------------------------------------------------------------------------------

    def fail(
        self, operation: str, *, error: int = errno.EIO, passes: int = 0, times: int = 1
    ) -> None:
        """Make the next ``times`` calls of ``operation`` (the name of a method, or ``any``) fail with errno
        ``error``, after ``passes`` calls that succeed."""
        self._faults.append(_Fault(operation, passes, error, times))

    def _begin(self, operation: str, line: str) -> OSError | None:
        """Record an operation. Return the error with which it must fail, if any."""
        if self.on_operation is not None:
            self.on_operation(line)
        failure = None
        for fault in self._faults:
            if fault.operation not in {operation, "any"} or fault.times == 0:
                continue
            if fault.passes:
                fault.passes -= 1
            elif failure is None:
                fault.times -= 1
                failure = _error(fault.errno)
                line += f" fails with {errno.errorcode[fault.errno]}"
        self.transcript.append(line)
        return failure

    # --- the operations of Files ----------------------------------------------------------------

    def lock(self) -> None:
        if self._locked:
            raise StoreInUse("the store in memory is in use. Close it first.")
        self._begin("lock", "lock")
        self._locked = True

    def lock_to_read(self) -> None:
        self.lock()

    def unlock(self) -> None:
        if self._locked:
            self._begin("unlock", "unlock")
            self._locked = False

    def lock_images(self) -> None:
        """Do nothing: no other process writes here."""

    def unlock_images(self) -> None:
        """Do nothing, like `lock_images`."""

    def removable(self) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def names(self) -> list[str]:
        with self._mutex:
            return sorted(self._names)

    def content(self, name: str) -> Content:
        data = bytes(self._file(name).content)
        return Content(len(data), len(data.rstrip(b"\0")), partial(_read_into, data))

    def read(self, name: str, limit: int = -1, offset: int = 0) -> memoryview:
        data = self._file(name).content
        return memoryview(bytes(data[offset:] if limit < 0 else data[offset : offset + limit]))

    def part(self, name: str, offset: int, length: int) -> bytes:
        """Return ``length`` bytes starting at ``offset``, or fewer if the file ends earlier."""
        with self._mutex:
            return bytes(self._file(name).content[offset : offset + length])

    def size(self, name: str) -> int:
        """Return the size of a file."""
        return len(self._file(name).content)

    def create(self, name: str, size: int) -> None:
        with self._mutex:
            self._must("create", f"create {name}: {size} bytes")
            self._take_space(size - len(self._names.get(name, CrashableFile()).content))
            file = CrashableFile()
            self._name(Naming(file, name, None))
            self._change(Write(file, size, None))

    def allocate(self, name: str, size: int) -> None:
        with self._mutex:
            self._must("allocate", f"allocate {name}: {size} bytes")
            file = self._file(name)
            if size > len(file.content):
                self._take_space(size - len(file.content))
                self._change(Write(file, size, None))

    def write(self, name: str, offset: int, data: Bytes) -> None:
        with self._mutex:
            failure = self._begin("write", f"write {name} at {offset}: {len(data)} bytes")
            data = bytes(data)
            if failure is not None:
                data = data[: len(data) // 2]
            file = self._file(name)
            if failure is None:
                self._take_space(offset + len(data) - len(file.content))
            self._change(Write(file, offset, data))
            if failure is not None:
                raise failure

    def truncate(self, name: str, size: int) -> None:
        with self._mutex:
            self._must("truncate", f"truncate {name}: {size} bytes")
            self._change(Write(self._file(name), size, None, cuts=True))

    def sync(self, name: str) -> None:
        # Before the mutex is taken: a test may block an fsync while other threads write.
        failure = self._begin("sync", f"sync {name}")
        with self._mutex:
            file = self._file(name)
            mine = [write for write in self._writes if write.file is file]
            self._writes = [write for write in self._writes if write.file is not file]
            for write in mine:
                kept = write.whole() if failure is None else self._torn(write, self._random)
                write.apply(file.durable, kept)
        if failure is not None:
            raise failure

    def rename(self, old: str, new: str) -> None:
        with self._mutex:
            self._must("rename", f"rename {old} {new}")
            self._name(Naming(self._file(old), new, old))

    def remove(self, name: str) -> None:
        with self._mutex:
            self._must("remove", f"remove {name}")
            self._file(name)
            self._name(Naming(None, None, name))

    def sync_directory(self) -> None:
        with self._mutex:
            failure = self._begin("sync_directory", "sync directory")
            for naming in self._namings:
                if failure is None or self._random.random() < 0.5:
                    naming.apply(self._durable_names)
            self._namings = []
            if failure is not None:
                raise failure

    def close(self, name: str) -> None:
        """Do nothing: no file is held open."""

    def free_bytes(self) -> int:
        with self._mutex:
            return 1 << 60 if self.capacity is None else max(0, self.capacity - self.used_bytes())

    # --- crashes --------------------------------------------------------------------------------

    def used_bytes(self) -> int:
        """Return the total size of all files."""
        return sum(len(file.content) for file in self._names.values())

    def crash_images(self, *, seed: int, count: int) -> Iterator[CrashableFiles]:
        """Yield ``count`` random examples of the files that a crash at this moment may leave."""
        random = Random(seed)
        for _ in range(count):
            # Some crashes lose nearly everything, some nearly nothing.
            loss = random.choice((0.1, 0.5, 0.9))
            with self._mutex:
                writes = [self._torn(write, random, loss=loss) for write in self._writes]
                image = self._image(writes, [random.random() >= loss for _ in self._namings])
            yield image

    def all_crash_images(self) -> Iterator[CrashableFiles]:
        """Yield every combination of complete writes and names. Then tear each write at every byte: yield it with
        only the bytes before and only the bytes after the tear, while all other writes and names are complete."""
        pending = len(self._writes) + len(self._namings)
        assert 2**pending <= _MOST_SUBSETS, f"{pending} pending changes have too many combinations"
        cut = len(self._writes)
        for chosen in itertools.product((True, False), repeat=pending):
            yield self._image(
                [
                    write.whole() if kept else []
                    for write, kept in zip(self._writes, chosen, strict=False)
                ],
                list(chosen[cut:]),
            )
        whole = [write.whole() for write in self._writes]
        for index, write in enumerate(self._writes):
            size = 0 if write.data is None else len(write.data)
            for at in range(1, size):
                for torn in ([(0, at)], [(at, size)]):
                    kept_writes = [*whole[:index], torn, *whole[index + 1 :]]
                    yield self._image(kept_writes, [True] * len(self._namings))

    def _image(self, writes: list[Ranges], namings: list[bool]) -> CrashableFiles:
        image = CrashableFiles(capacity=self.capacity)
        names = dict(self._durable_names)
        for naming, kept in zip(self._namings, namings, strict=True):
            if kept:
                naming.apply(names)
        contents = {file: bytearray(file.durable) for file in names.values()}
        for write, ranges in zip(self._writes, writes, strict=True):
            if write.file in contents:
                write.apply(contents[write.file], ranges)
        for name, file in names.items():
            content = contents[file]
            image._names[name] = CrashableFile(content, bytearray(content))
        image._durable_names = dict(image._names)
        return image

    @staticmethod
    def _torn(write: Write, random: Random, *, loss: float = 0.5) -> Ranges:
        """Return a random part of a write: all, nothing, its beginning, its end, or some of its sectors."""
        if write.data is None:
            return write.whole() if random.random() >= loss else []
        size = len(write.data)
        match random.randrange(5):
            case 0:
                return write.whole()
            case 1:
                return []
            case 2:
                return [(0, random.randint(0, size))]
            case 3:
                return [(random.randint(0, size), size)]
            case _:
                first = SECTOR_BYTES - write.offset % SECTOR_BYTES
                edges = [0, *range(first, size, SECTOR_BYTES), size]
                pieces = itertools.pairwise(edges)
                return [piece for piece in pieces if random.random() >= loss]

    def corrupt(self, name: str, offset: int, data: bytes) -> None:
        """Overwrite durable bytes without recording an operation. Extends the file if necessary."""
        for content in (self._file(name).content, self._file(name).durable):
            if len(content) < offset + len(data):
                content.extend(bytes(offset + len(data) - len(content)))
            content[offset : offset + len(data)] = data

    def cut(self, name: str, size: int) -> None:
        """Truncate a file to ``size`` bytes durably, without recording an operation."""
        for content in (self._file(name).content, self._file(name).durable):
            del content[size:]

    # --- parts ----------------------------------------------------------------------------------

    def _must(self, operation: str, line: str) -> None:
        failure = self._begin(operation, line)
        if failure is not None:
            raise failure

    def _file(self, name: str) -> CrashableFile:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._names[name]

    def _take_space(self, more: int) -> None:
        if self.capacity is not None and more > 0 and self.used_bytes() + more > self.capacity:
            raise _error(errno.ENOSPC)

    def _change(self, write: Write) -> None:
        write.apply(write.file.content, write.whole())
        self._writes.append(write)

    def _name(self, naming: Naming) -> None:
        naming.apply(self._names)
        self._namings.append(naming)


def _read_into(content: bytes, data: memoryview, offset: int) -> int:
    """Copy ``content``, starting at ``offset``, into ``data``, like `headwater.journal.disk.system.read_into`."""
    part = content[offset : offset + len(data)]
    data[: len(part)] = part
    return len(part)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


# --- changes of files and names that a crash may undo ---------------------------------------------


Ranges = list[tuple[int, int]]
"""The ranges of a write that reached the disk, relative to its start."""


@dataclass(eq=False)
class CrashableFile:
    """A file. A read returns ``content``; only ``durable`` is certain to survive a crash."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)


@dataclass(eq=False)
class Write:
    """A change of a file that is not yet durable. If ``data`` is None, the change extends the file to
    ``offset`` bytes or, with ``cuts``, shortens the file to ``offset`` bytes."""

    file: CrashableFile
    offset: int
    data: bytes | None
    cuts: bool = False

    def apply(self, content: bytearray, kept: Ranges) -> None:
        if self.data is None:
            if kept and self.cuts:
                del content[self.offset :]
            elif kept and len(content) < self.offset:
                content.extend(bytes(self.offset - len(content)))
            return
        for start, end in kept:
            first, last = self.offset + start, self.offset + end
            if len(content) < last:
                content.extend(bytes(last - len(content)))
            content[first:last] = self.data[start:end]

    def whole(self) -> Ranges:
        return [(0, 1 if self.data is None else len(self.data))]


@dataclass(eq=False)
class Naming:
    """Gives ``file`` the name ``new`` and removes the name ``old``. A name that is None is left out."""

    file: CrashableFile | None
    new: str | None
    old: str | None

    def apply(self, names: dict[str, CrashableFile]) -> None:
        if self.old is not None:
            names.pop(self.old, None)
        if self.new is not None:
            assert self.file is not None
            names[self.new] = self.file
