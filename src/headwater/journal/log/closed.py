"""Reads closed journal files, which no process writes any more, up to the end that a rotation gave them."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.errors import JournalDamaged
from headwater.journal.disk.files import Files
from headwater.journal.format.batches import JournalBatch, PieceReader
from headwater.journal.format.failures import damaged_file
from headwater.journal.format.names import JournalFile, file_name
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    FORMAT_VERSION,
    SYNCED_GROUP_BYTES,
    Synced,
    read_file_header,
    read_groups,
    read_synced,
)


def read_closed(
    files: Files, first: int, end: Synced, seed: int, turn: int
) -> Iterator[JournalBatch]:
    """Yield the engine's groups of the journal files from ``first`` to ``end.number``. The last file must end at
    ``end.offset`` (0: at the offset that the next file names). ``turn`` is the turn of the last group before.

    Memory is bounded. Raises `JournalDamaged` at the first flaw, with file and offset.
    """
    for number in range(first, end.number + 1):
        try:
            file = _header(files, number, seed)
            offset = end.offset
            if number < end.number or not offset:
                offset = _end_of(files, file, seed, turn)
            content = files.content(file.name)
            reader = PieceReader(file.name, content, offset, number=number, seed=seed, key=file.key)
            yield from reader.batches(FILE_HEADER_BYTES, turn)
            reader.refuse_rest(_Damaged(files, file))
            turn = reader.turn
        finally:
            files.close(file_name(number))


class _Damaged:
    """Returns the error for damage in one file."""

    def __init__(self, files: Files, file: JournalFile) -> None:
        self._files = files
        self._file = file

    def __call__(self, offset: int, found: str) -> JournalDamaged:
        name, size = self._file.name, self._file.size
        return damaged_file(self._files, name, offset, found, size=size, manifest=True)


def _header(files: Files, number: int, seed: int) -> JournalFile:
    name = file_name(number)
    try:
        header = read_file_header(files.read(name, FILE_HEADER_BYTES))
    except FileNotFoundError:
        raise _Damaged(files, JournalFile(number, 0))(0, "no file of this name") from None
    if header is None or (header.number, header.seed) != (number, seed):
        raise _Damaged(files, JournalFile(number, 0))(0, "no valid header of this file")
    if not 1 <= header.version <= FORMAT_VERSION:
        raise _Damaged(files, JournalFile(number, 0))(0, f"a file of format {header.version}")
    return JournalFile(number, header.size, header.version)


def _end_of(files: Files, file: JournalFile, seed: int, turn: int) -> int:
    """Return the end of a file according to the first record of the next one."""
    later = _header(files, file.number + 1, seed)
    head = files.read(later.name, FILE_HEADER_BYTES + SYNCED_GROUP_BYTES)
    groups = read_groups(head, FILE_HEADER_BYTES, seed=seed, turn=turn, key=later.key)
    group = next(groups, None)
    synced = None if group is None else read_synced(group.facts)
    if synced is None or synced.number != file.number or synced.offset < FILE_HEADER_BYTES:
        found = f"a first record that does not say where {file.name} ended"
        raise _Damaged(files, later)(FILE_HEADER_BYTES, found)
    return synced.offset
