"""The next journal file, allocated before it is needed.

Rule 1. A file is made under another name at its full size, with its header, and fsynced; then it is
        renamed and the directory is fsynced. So a file that has its name has its header and its space.
Rule 2. That it cannot be made is a reason (a sentence for the client), never an error: nothing has
        been written that anybody relies on, so it may be tried again.
Rule 3. After an fsync of the directory that failed nothing is made again: a second fsync would
        succeed without the names being durable.
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
"""What a file holds beside groups: its header, what its first group says of the file before, and the
place that is kept for a clean stop."""


class Reserve:
    """Files that are ready to be written, in order; all but the first come from a crash.

    ``refusal`` is why the last attempt to make one failed; None after one that did not.
    """

    def __init__(self, files: Files, file_bytes: int, seed: int) -> None:
        assert file_bytes > _OVERHEAD, "a file must have room for one group"
        self.refusal: str | None = None
        self._files = files
        self._file_bytes = file_bytes
        self._seed = seed
        self._ready: list[JournalFile] = []
        self._wanted = 0
        self._broken: str | None = None

    def adopt(self, spares: list[JournalFile]) -> None:
        """These files are there from before, empty. One of an older format is made again as far as
        there is space for that; else it is used as it is."""
        for spare in spares:
            if spare.version < FORMAT_VERSION:
                remade = self._make(spare.number, spare.size) is None
                if remade or self._broken is not None:
                    return
            if not self.reclaim(spare):
                # It is made anew when its turn comes, and so are those after it.
                return
            self._ready.append(spare)

    def reclaim(self, file: JournalFile) -> bool:
        """Take all space of a file that is there: copying may have left holes in it."""
        try:
            self._files.allocate(file.name, file.size)
        except OSError as error:
            self.refusal = _reason(error)
            return False
        return True

    def room(self) -> int:
        """How many bytes of groups fit into the next file, 0 or less when there is none."""
        return self._ready[0].size - _OVERHEAD if self._ready else 0

    def take(self) -> JournalFile:
        """The next file, to be written now."""
        return self._ready.pop(0)

    def ahead(self, number: int) -> None:
        """Make sure that file ``number``, the next, is there. One attempt a number: after a failure
        the next is made when `make_next` asks for it."""
        if not self._ready and self._wanted != number:
            self._wanted = number
            self.make_next(number, 0)

    def make_next(self, number: int, needed: int) -> str | None:
        """Make file ``number`` with room for ``needed`` bytes of groups, in place of a smaller one
        that is ready; the reason why that is not possible.

        Sizes are multiples of the usual one, so that a turn that grows past it command by command
        does not make a file for each.
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
                # Asking costs little; allocating until nothing is left would cost every refusal a
                # good part of the disk's time.
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
            # Which file a name stands for after a crash is not known now.
            self._ready.clear()
            self._broken = f"{_reason(error)}, for the directory; no file is made until restart"
            return self._broken
        self._ready[:1] = [file]
        return None


def _reason(error: OSError) -> str:
    return f"[Errno {error.errno}] {error.strerror}"
