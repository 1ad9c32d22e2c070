"""The next journal file, allocated before it is needed.

Rule 1. A file is created under a temporary name with its full size and its header, and fsynced. Then it
        is renamed and the directory is fsynced. A file with its final name therefore has its header and
        its space.
Rule 2. A failure to create a file is a reason to refuse a write (a sentence for the client), not an error:
        nothing has been written that any client relies on, so the creation may be retried.
Rule 3. After a failed fsync of the directory no file is created any more: a second fsync would succeed
        without the names being durable.
Rule 4. A file is created only if space remains free for the next image (`Catalog.spare_bytes`) and for the
        small file of its rotation: the image makes room by replacing the journal's older files, and needs
        space itself.
Rule 5. MANIFEST names a file before the first record is written to that file.
Rule 6. A new directory begins with a file of `FIRST_FILE_BYTES`. Each file is twice as large as the one
        before, up to the usual size.
"""

from __future__ import annotations

import contextlib

from headwater.journal.disk.files import Files
from headwater.journal.format.names import JournalFile
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    FORMAT_VERSION,
    SYNCED_GROUP_BYTES,
    file_header,
)
from headwater.journal.format.replacing import replace_file
from headwater.journal.images.catalog import Catalog

FIRST_FILE_BYTES = 2 * 1024 * 1024
_USUAL_BYTES = 64 * 1024
"""Size of a usual turn, in bytes. `refuses` returns None while it fits and no larger turn was refused."""
_OVERHEAD = FILE_HEADER_BYTES + 2 * SYNCED_GROUP_BYTES
"""The part of a file that is not available for groups: its header, the first group, which refers to the
previous file, and the space for the group of a clean stop."""


class Reserve:
    """Files that are ready to be written, in order. All but the first remain from a crash.

    ``refusal`` is the reason why the last attempt to create a file failed; None if it succeeded.
    """

    def __init__(self, files: Files, catalog: Catalog, file_bytes: int, seed: int) -> None:
        assert file_bytes > _OVERHEAD, "a file must have space for one group"
        self.refusal: str | None = None
        self._files = files
        self._catalog = catalog
        self._file_bytes = file_bytes
        self._seed = seed
        self._small = min(file_bytes, FIRST_FILE_BYTES)
        self._ready: list[JournalFile] = []
        self._wanted = 0
        self._broken: str | None = None
        self._lacking = 0
        """Number of bytes that had to be free for the last file that was not created, if fewer were; otherwise 0."""
        self._refused = 0
        """Size of the largest turn that was refused since a file was created, in bytes; otherwise 0."""
        self._before = 0
        """Size of the file before the next, in bytes; 0 for the first file."""

    def adopt(self, current: JournalFile, spares: list[JournalFile]) -> None:
        """Take over existing empty files, which follow ``current``. A file of an older format is created again if there
        is space for that; otherwise it is used as it is."""
        self._before = current.size
        for spare in spares:
            if spare.version < FORMAT_VERSION:
                remade = self._make(spare.number, spare.size, 0) is None
                if remade or self._broken is not None:
                    return
            if not self.reclaim(spare):
                # It is created again when it is needed, and so are the files after it.
                return
            self._ready.append(spare)

    def reclaim(self, file: JournalFile) -> bool:
        """Allocate all space of an existing file: copying it may have left holes, and a rotation may have cut it.
        If it was cut, its new size is durable before anything is written there (recovery.py, rule 4). Return
        whether it worked."""
        try:
            short = self._files.reads.size(file.name) < file.size
            self._files.allocate(file.name, file.size)
            if short:
                self._files.sync(file.name)
        except OSError as error:
            self.refusal = _reason(error)
            return False
        return True

    def room(self) -> int:
        """Return the number of bytes of groups that fit into the next file; 0 or less if no file is ready."""
        return self._ready[0].size - _OVERHEAD if self._ready else 0

    def take(self) -> JournalFile:
        """Remove the next file from the reserve and return it for writing."""
        file = self._ready.pop(0)
        self._before = file.size
        return file

    def last(self, current: int) -> int:
        """Return the number of the last file that is ready, or ``current``, the file that is written."""
        return self._ready[-1].number if self._ready else current

    def secure(self, number: int) -> str | None:
        """Make sure that file ``number``, the next, is ready and that MANIFEST names it. Return None, or the
        reason why that is not possible."""
        if not self._ready and self.make_next(number, 0) is not None:
            # The file is small, and no space is kept free for the next image: the file is created for that image.
            reason = self._broken or self._catalog.broken or self._make(number, self._small, 0)
            if reason is not None:
                return reason
        try:
            self._catalog.name_last(number)
        except OSError as error:
            return _reason(error)
        return None

    def prepare(self, number: int) -> None:
        """Create file ``number``, the next, unless it is ready. Tries once for each number; after a
        failure, `make_next` creates the file when it is needed."""
        if not self._ready and self._wanted != number:
            self._wanted = number
            self.make_next(number, 0)

    def make_next(self, number: int, needed: int) -> str | None:
        """Create file ``number`` with space for ``needed`` bytes of groups, replacing a smaller one that is
        ready. Return the reason if that is not possible, otherwise None.

        Sizes double, and are then multiples of the usual size, so that a turn that outgrows the file command by
        command does not create a file for each command.
        """
        usual, needed = self._file_bytes, needed + _OVERHEAD
        size = min(usual, max(FIRST_FILE_BYTES, 2 * self._before))
        while size < needed and size < usual:
            size = min(usual, 2 * size)
        if size < needed:
            size = -(-needed // usual) * usual
        left = self._catalog.spare_bytes + self._small
        self._lacking = 0
        self.refusal = self._broken or self._catalog.broken or self._make(number, size, left)
        self._refused = 0 if self.refusal is None else max(self._refused, needed)
        return self.refusal

    def refuses(self, allowance: int) -> str | None:
        """Return the reason why the last attempt could not create the next file. Return None if a turn as large as the
        refused one, or a usual one, now fits into ``allowance``, or if only space was lacking that is free again. Other
        reasons last until an attempt succeeds."""
        if self.refusal is None or allowance >= max(_USUAL_BYTES, self._refused):
            return None
        if not self._lacking:
            return self.refusal
        try:
            return self.refusal if self._files.free_bytes() < self._lacking else None
        except OSError:
            return self.refusal

    def _make(self, number: int, size: int, left: int) -> str | None:
        """Create a file if at least ``left`` bytes stay free. Return None, or the reason why that failed."""
        files = self._files
        file = JournalFile(number, size)
        try:
            free = self._catalog.make_room(size + left)
            if free < size + left:
                # Checking is cheap. Trying to allocate until the disk is full would keep it busy for
                # each refused write.
                self._lacking = max(self._lacking, size + left)
                image = f", {left} for the next image," if left else ""
                return f"{size} bytes are needed for the next file{image} and {free} are free"
            replace_file(files, file.name, file_header(number, size, self._seed), size)
        except OSError as error:
            return _reason(error)
        try:
            files.sync_directory()
        except OSError as error:
            # It is unknown which file a name will refer to after a crash.
            return self._break(f"{_reason(error)} (directory); no file is created until a restart")
        reason = self._name(file)
        if reason is None:
            self._ready[:1] = [file]
        return reason

    def _name(self, file: JournalFile) -> str | None:
        """Let MANIFEST name a file (rule 5), and return None. If that fails, remove the file and return why."""
        try:
            self._catalog.name_last(file.number)
        except OSError as error:
            if self._catalog.broken is not None:
                return self._break(self._catalog.broken)
            with contextlib.suppress(OSError):
                self._files.remove(file.name)
            return _reason(error)
        return None

    def _break(self, reason: str) -> str:
        self._ready.clear()
        self._broken = reason
        return reason


def _reason(error: OSError) -> str:
    return f"[Errno {error.errno}] {error.strerror}"
