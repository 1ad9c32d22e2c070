"""The next journal file, allocated before it is needed.

Rule 1. A file is created under a temporary name with its full size and its header, and fsynced. Then it
        is renamed and the directory is fsynced. A file with its final name therefore has its header and
        its space.
Rule 2. Failing to create a file is a reason to refuse a write (a sentence for the client), not an error:
        nothing has been written that any client relies on, so it may be retried.
Rule 3. After a failed fsync of the directory no file is created any more: a second fsync would succeed
        without the names being durable.
"""

from __future__ import annotations

import contextlib

from headwater.journal.files import Files
from headwater.journal.names import TEMPORARY_SUFFIX, JournalFile
from headwater.journal.records import (
    FILE_HEADER_BYTES,
    FORMAT_VERSION,
    SYNCED_GROUP_BYTES,
    file_header,
)

_OVERHEAD = FILE_HEADER_BYTES + 2 * SYNCED_GROUP_BYTES
"""The part of a file that is not available for groups: its header, the first group, which refers to the
previous file, and the space for the group of a clean stop."""


class Reserve:
    """Files that are ready to be written, in order. All but the first remain from a crash.

    ``refusal`` says why the last attempt to create a file failed; None if it succeeded.
    """

    def __init__(self, files: Files, file_bytes: int, seed: int) -> None:
        assert file_bytes > _OVERHEAD, "a file must have space for one group"
        self.refusal: str | None = None
        self._files = files
        self._file_bytes = file_bytes
        self._seed = seed
        self._ready: list[JournalFile] = []
        self._wanted = 0
        self._broken: str | None = None

    def adopt(self, spares: list[JournalFile]) -> None:
        """Take over existing empty files. A file of an older format is created again if there is space for
        that; otherwise it is used as it is."""
        for spare in spares:
            if spare.version < FORMAT_VERSION:
                remade = self._make(spare.number, spare.size) is None
                if remade or self._broken is not None:
                    return
            if not self.reclaim(spare):
                # It is created again when it is needed, and so are those after it.
                return
            self._ready.append(spare)

    def reclaim(self, file: JournalFile) -> bool:
        """Allocate all space of an existing file: copying it may have left holes. Return whether it
        worked."""
        try:
            self._files.allocate(file.name, file.size)
        except OSError as error:
            self.refusal = _reason(error)
            return False
        return True

    def room(self) -> int:
        """Return how many bytes of groups fit into the next file; 0 or less if there is none."""
        return self._ready[0].size - _OVERHEAD if self._ready else 0

    def take(self) -> JournalFile:
        """Remove the next file from the reserve and return it for writing."""
        return self._ready.pop(0)

    def prepare(self, number: int) -> None:
        """Create file ``number``, the next, unless it is ready. Tries once for each number; after a failure
        `make_next` creates it when it is needed."""
        if not self._ready and self._wanted != number:
            self._wanted = number
            self.make_next(number, 0)

    def make_next(self, number: int, needed: int) -> str | None:
        """Create file ``number`` with space for ``needed`` bytes of groups, replacing a smaller one that is
        ready. Return the reason if that is not possible, otherwise None.

        Sizes are multiples of the usual size, so that a turn that outgrows it command by command does not
        create a file for each.
        """
        times = max(1, -(-(needed + _OVERHEAD) // self._file_bytes))
        self.refusal = self._broken or self._make(number, times * self._file_bytes)
        return self.refusal

    def _make(self, number: int, size: int) -> str | None:
        files = self._files
        file = JournalFile(number, size)
        temporary = file.name + TEMPORARY_SUFFIX
        try:
            free = files.free_bytes()
            if free < size:
                # Checking is cheap. Trying to allocate until the disk is full would keep it busy for
                # each refused write.
                return f"{size} bytes are needed for the next file and {free} are free"
            files.create(temporary, size)
            files.write(temporary, 0, file_header(number, size, self._seed))
            files.sync(temporary)
            files.rename(temporary, file.name)
        except OSError as error:
            with contextlib.suppress(OSError):
                files.remove(temporary)
            return _reason(error)
        try:
            files.sync_directory()
        except OSError as error:
            # It is unknown which file a name will refer to after a crash.
            self._ready.clear()
            self._broken = f"{_reason(error)} (directory); no file is created until a restart"
            return self._broken
        self._ready[:1] = [file]
        return None


def _reason(error: OSError) -> str:
    return f"[Errno {error.errno}] {error.strerror}"
