"""Reads the journal from an offset of the store on, while it is written: what a replica lacks.

    journal files   ── piece by piece, any thread ──▶   groups as they were in the turn's buffer, for the link

Rule 1. What is read was committed: the caller passes the end of the journal, which it reads between two turns.
Rule 2. Only the groups that count for the offset are returned (`records.counted_bytes`): not the journal's own, and not
        those that say where this directory has bodies. They are not bound to their positions.
Rule 3. A file that ends before the offset that the store had at its end is damaged.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import NamedTuple

from headwater.errors import JournalDamaged
from headwater.journal.disk.files import Files
from headwater.journal.format.batches import FOREIGN, FULL, PIECE_BYTES, GroupScanner
from headwater.journal.format.checksum import LOCAL_KIND, bind_groups
from headwater.journal.format.names import JournalFile
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    Synced,
    read_file_header,
)


class NoSuchOffset(Exception):
    """The offset is not the end of a group, so the state that it names is not one of this store."""


class FileStart(NamedTuple):
    """The offset of the store at the start of a journal file."""

    number: int
    offset: int


class JournalTail:
    """A position in the journal files. ``offset`` is the offset of the store after the groups that were read.

    ``begin`` is the start of the file that has the groups after the offset ``wanted``, which `read` skips to. ``at`` is
    the place in that file at which its groups from ``begin.offset`` on begin.
    """

    def __init__(
        self, files: Files, seed: int, begin: FileStart, wanted: int, at: int = FILE_HEADER_BYTES
    ) -> None:
        self.offset = begin.offset
        self.number = begin.number
        self._files = files
        self._seed = seed
        self.wanted = wanted
        self._at = at
        self._file = JournalFile(0, 0)
        self._turn = 0

    def ended(self, end: Synced) -> bool:
        """Return whether everything up to the place ``end`` was read."""
        return (self.number, self._at) >= end

    def read(self, end: Synced, reached: Mapping[int, int]) -> bytearray:
        """Return the next groups, at most about `PIECE_BYTES` unless the first is larger. The result may be empty
        before ``end``, the end of the journal. ``reached`` has the offset of the store at the end of each closed file.

        Raises `JournalDamaged`, `OSError`, and `NoSuchOffset` if ``wanted`` is not the end of a group.
        """
        if self._file.number != self.number:
            self._file = self._opened()
        name, last = self._file.name, self.number == end.number
        reads, wanted = self._files.reads, PIECE_BYTES
        while True:
            limit = min(wanted, end.offset - self._at) if last else wanted
            data = memoryview(reads.at(name, self._at, limit))
            groups = self._groups(data)
            needed = _group_bytes(data)
            if groups is not None or needed <= wanted or len(data) < wanted:
                break
            wanted = needed  # one group that is larger than a piece
        if groups is None:
            if last and not self.ended(end):
                raise self._damaged("no complete record")
            if not last:
                self._leave(reached)
        return bytearray() if groups is None else groups

    def _opened(self) -> JournalFile:
        name = JournalFile(self.number, 0).name
        header = read_file_header(memoryview(self._files.reads.at(name, 0, FILE_HEADER_BYTES)))
        if header is None or (header.number, header.seed) != (self.number, self._seed):
            path = self._files.path(name)
            raise JournalDamaged(
                f"{path} is damaged at offset 0: found no header of this journal's file"
            )
        return JournalFile(self.number, header.size, header.version)

    def _leave(self, reached: Mapping[int, int]) -> None:
        """Continue with the next file."""
        offset = reached.get(self.number)
        if offset is not None and offset != self.offset:
            raise self._damaged(f"offset {self.offset} of the store instead of {offset} at its end")
        self.number += 1
        self._at = FILE_HEADER_BYTES

    def _groups(self, data: memoryview) -> bytearray | None:
        """Return the counted groups of a piece that begins at this position; None if no complete group begins there."""
        key = self._file.key
        scanner = GroupScanner(data, self._at, self.number, self._seed, self._turn, key)
        found, state = bytearray(), FULL
        while state == FULL:
            starts, ends = array("Q"), array("Q")
            state = scanner.scan(starts, ends, array("Q"))
            self._take(data, starts, ends, found)
        if state == FOREIGN:
            raise self._damaged("a fact of unknown kind")
        if not scanner.offset:
            return None
        self._at += scanner.offset
        self._turn = scanner.turn
        return found

    def _take(
        self, data: memoryview, starts: array[int], ends: array[int], found: bytearray
    ) -> None:
        """Append the counted groups to ``found``, except those up to the wanted offset."""
        for start, end in zip(starts, ends, strict=True):
            if data[start] == LOCAL_KIND:
                continue
            self.offset += end - start
            if self.offset <= self.wanted:
                continue
            if self.offset - (end - start) < self.wanted:
                raise NoSuchOffset
            mark, begin = len(found), start - GROUP_HEADER_BYTES
            found += data[begin:end]
            if self._file.key is not None:
                bind_groups(found, mark, len(found), self._file.key, self._at + begin)

    def _damaged(self, found: str) -> JournalDamaged:
        path = self._files.path(self._file.name)
        return JournalDamaged(f"{path} is damaged at offset {self._at}: found {found}")


def _group_bytes(data: memoryview) -> int:
    """Return the size of the group that begins with ``data``; 0 if its header is not complete."""
    if len(data) < GROUP_HEADER_BYTES:
        return 0
    return GROUP_HEADER_BYTES + int.from_bytes(data[:4], "little")
