"""The journal file that is being written. Groups are appended to it and bound to their positions.

The position of a group is not known when it is sealed. `Writer.append` therefore masks the checksum of each
group when it is written, in the turn's own buffer: this takes a few instructions a group, and the buffer is
cleared afterwards. In a file of version 1 groups are not bound. Such a file is continued unbound, because all
groups of a file follow the same rule.
"""

from __future__ import annotations

from headwater.journal.disk.files import Files
from headwater.journal.format.names import JournalFile
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    SYNCED_GROUP_BYTES,
    Synced,
    counted_bytes,
    synced_group,
)

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # checksum_c.pxd and memory_c.pxd have them in C
    from headwater.journal.format.checksum import bind_groups
    from headwater.native.memory import u64_at


class Writer:
    """Appends groups, and records of the last fsync, to the current file."""

    def __init__(self, files: Files, seed: int) -> None:
        self._files = files
        self._seed = seed
        self.number = self.size = self.end = 0
        self.name = ""
        self._key = 0
        self._binds = False
        self.turn = self.now_ms = 0
        """Turn and time of the last group."""
        self.unrecorded_sync: Synced | None = None
        """Result of the last fsync, if no group records it yet; otherwise None."""
        self.unsynced = False
        self.clean = False
        """True if the last group says that everything before it is durable."""

    def use(self, file: JournalFile, end: int) -> None:
        """Write to this file from now on, starting at ``end``."""
        self.number, self.size, self.end, self.name = file.number, file.size, end, file.name
        key = file.key
        self._binds = key is not None
        self._key = key or 0

    def here(self) -> Synced:
        """Return the fact that everything written so far is durable."""
        return Synced(self.number, self.end)

    def room(self) -> int:
        """Return the number of bytes of groups that fit into this file, besides the record of the last fsync
        and the group of a clean stop."""
        own = SYNCED_GROUP_BYTES if self.unrecorded_sync is None else 2 * SYNCED_GROUP_BYTES
        return self.size - self.end - own

    def append(self, buffer: bytearray, start: int, end: int) -> int:
        """Write the complete groups from ``start`` to ``end``-1, after the record of the last fsync if it is not
        written yet. Return the number of bytes by which they move the offset of the store."""
        turn = u64_at(buffer, start + 8)
        assert turn >= self.turn, f"turn {turn} after turn {self.turn}: recovery would reject it"
        self.turn = turn
        self.now_ms = u64_at(buffer, start + 16)
        self.clean = False
        if self.unrecorded_sync is not None:
            synced, self.unrecorded_sync = self.unrecorded_sync, None
            self._write_synced(synced)
        return self._write(buffer, start, end)

    def sync(self) -> None:
        """Make everything in this file durable."""
        self._files.sync(self.name)
        self.unsynced = False
        self.unrecorded_sync = self.here()

    def leave(self) -> None:
        """Write the record of the last fsync if this file has no group when the next one is begun. Without it,
        no record would name the end of the previous file, and recovery would not continue after that end."""
        synced = self.unrecorded_sync
        if self.end == FILE_HEADER_BYTES and synced is not None and synced.number < self.number:
            self._write_synced(synced)

    def end_cleanly(self) -> None:
        """Write a group that says that everything before it is durable."""
        self._write_synced(self.here())
        self.clean = True

    def _write_synced(self, synced: Synced) -> None:
        group = synced_group(synced, self.turn, self.now_ms, self._seed)
        self._write(group, 0, SYNCED_GROUP_BYTES)

    def _write(self, buffer: bytearray, start: int, end: int) -> int:
        if self._binds:
            counted = bind_groups(buffer, start, end, self._key, self.end)
        else:
            counted = counted_bytes(buffer, start, end)
        if end - start == len(buffer):
            self._files.write(self.name, self.end, buffer)
        else:
            with memoryview(buffer) as whole, whole[start:end] as groups:
                self._files.write(self.name, self.end, groups)
        self.end += end - start
        self.unsynced = True
        return counted
