"""Reads a journal back: every whole group in order, then a decision about what stands behind them.

A crash leaves a *tail*: bytes of records whose fsync never returned, whole, torn or missing in any
order. A tail is cut off and nobody was promised what is in it. Anything else that cannot be read is
*damage*: the start is refused, with file and offset, and nothing on disk is changed.

Rule 1. Where no whole group follows, a place is damaged when it is known to have been durable:
        because a later file holds records (a file is fsynced before the next is written to), or
        because a whole record at any later byte, checksum and turn checked, holds the fact
        ``synced`` for a later offset of this file. Otherwise a tail begins there.
Rule 2. The first record of a file says where the file before it ended; one that ended elsewhere is
        damaged. Where that first record cannot be read, the file still holds records when a whole
        one begins at any byte of it.
Rule 3. A file gets its name after its header is durable. A file without its header is damaged.
Rule 4. Files are numbered from 1 without a gap. A missing file is damage.
Rule 5. Whatever is behind a cut is overwritten with zeros, durably, before anything new is written,
        so that no stale record can follow a new one.
Rule 6. What no fsync vouches for is written once more before it is relied on: after an fsync that
        failed, what a file or a directory reads as may be memory that never reaches the disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from headwater.errors import JournalDamaged, StoreUnusable
from headwater.journal.files import Content, Files
from headwater.journal.records import (
    ENGINE_KINDS,
    FILE_HEADER_BYTES,
    FORMAT_VERSION,
    SYNCED_GROUP_BYTES,
    Group,
    Synced,
    find_synced,
    flaw,
    holds_group,
    read_file_header,
    read_groups,
    read_synced,
)

TEMPORARY_SUFFIX = ".new"
"""A file that is being made; it gets its own name when its header is durable."""

_NAME = re.compile(r"journal-(\d{6,})")
_UNFINISHED = re.compile(rf"journal-\d{{6,}}{re.escape(TEMPORARY_SUFFIX)}")
_ZEROS = bytes(1024 * 1024)


def file_name(number: int) -> str:
    """The name of journal file ``number``.

    >>> file_name(7)
    'journal-000007'
    """
    return f"journal-{number:06d}"


class Cut(NamedTuple):
    """A tail that was cut off: ``length`` bytes from ``offset`` on, beginning with ``found``."""

    file: str
    offset: int
    length: int
    found: str

    def __str__(self) -> str:
        return f"{self.file}: cut {self.length} bytes at offset {self.offset}: {self.found}"


class JournalFile(NamedTuple):
    """One file of the journal and the size it was allocated with, in bytes."""

    number: int
    size: int

    @property
    def name(self) -> str:
        return file_name(self.number)


class Recovery:
    """What the files of a journal hold.

    Making one looks at names and headers; `replay` reads the groups, once, and fills in the rest;
    `repair` then changes the disk. Raises `JournalDamaged`, from the first two, and `StoreUnusable`
    for a format of a later version. An empty directory is an empty journal, ``seed`` None.

        groups, last_turn, last_now_ms   of the engine's groups that were read
        cuts                             the tails that `repair` cuts off
        notes                            sentences about what is odd and loses nothing acknowledged,
                                         or cannot be judged: for the log
        current, end                     the last file with records, and where they end in it
        spares                           the files after it, allocated and empty
        bytes                            what all groups and headers take up
        clean                            it ended with the fact that all before it was durable
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.seed: int | None = None
        self.groups = 0
        self.last_turn = 0
        self.last_now_ms = 0
        self.cuts: list[Cut] = []
        self.notes: list[str] = []
        self.end = 0
        self.bytes = 0
        self.clean = False
        self._vouched = Synced(0, 0)
        self._found = [self._known(name) for name in _in_order(files)]
        self.current = self._found[0] if self._found else JournalFile(0, 0)
        self.spares: list[JournalFile] = []

    def _known(self, name: str) -> JournalFile:
        """The file behind a name, if it is what its name says."""
        number = int(name.removeprefix("journal-"))
        header = read_file_header(self._files.read(name, FILE_HEADER_BYTES))
        if header is None:
            raise self._damaged(name, 0, "no header of a journal file")
        if header.version != FORMAT_VERSION:
            raise StoreUnusable(
                f"{self._files.path(name)} has format {header.version}; this version of Headwater "
                f"reads format {FORMAT_VERSION}. Start it with the version that wrote it, or later."
            )
        if header.number != number:
            raise self._damaged(name, 0, f"the header of {file_name(header.number)}")
        if self.seed is None:
            self.seed = header.seed
        elif self.seed != header.seed:
            raise self._damaged(name, 0, "the header of a file of another store")
        return JournalFile(number, header.size)

    def again(self) -> Recovery:
        """A fresh look at the same files, with what was written since."""
        return Recovery(self._files)

    # --- reading --------------------------------------------------------------------------------

    def replay(self) -> Iterator[Group]:
        """The engine's groups, oldest first. A group's facts are valid until the next is asked for.

        Raises `JournalDamaged` at the place that is damaged; groups before it have been given out.
        """
        for index, file in enumerate(self._found):
            self.current = file
            content = self._content(file)
            yield from self._groups_of(file, content.data)
            self.bytes += self.end
            later = self._found[index + 1 :]
            if not later or not self._goes_on(file, content, later[0]):
                self._judge_tails(file, content, later)
                self.spares = later
                break

    def _content(self, file: JournalFile) -> Content:
        content = self._files.content(file.name)
        size = len(content.data)
        if size < file.size:
            self.notes.append(
                f"{self._files.path(file.name)} has {size} bytes and was made with {file.size}: "
                "it was cut by other hands, what stood behind is not known"
            )
        return content

    def _groups_of(self, file: JournalFile, data: memoryview) -> Iterator[Group]:
        self.end = FILE_HEADER_BYTES
        self.clean = False
        for group in read_groups(data, FILE_HEADER_BYTES, seed=self._seed, turn=self.last_turn):
            self.end = group.end
            self.last_turn = group.turn
            if group.facts[0] < ENGINE_KINDS:
                self._own_fact(file, group)
            else:
                self.clean = False
                self.groups += 1
                self.last_now_ms = group.now_ms
                yield group

    def _own_fact(self, file: JournalFile, group: Group) -> None:
        synced = read_synced(group.facts)
        if synced is None:
            kind = group.facts[0]
            raise self._damaged(file.name, group.offset, f"a fact of unknown kind {kind:#04x}")
        if synced.number == file.number and synced.offset > group.offset:
            found = f"the statement that {synced.offset} was durable before it"
            raise self._damaged(file.name, group.offset, found)
        self._vouched = synced
        self.clean = synced == (file.number, group.offset)

    def _goes_on(self, file: JournalFile, content: Content, later: JournalFile) -> bool:
        """Whether the next file begins with a record, which says that this one ended where it did."""
        head = self._files.read(later.name, FILE_HEADER_BYTES + SYNCED_GROUP_BYTES)
        groups = read_groups(head, FILE_HEADER_BYTES, seed=self._seed, turn=self.last_turn)
        first = next(groups, None)
        synced = None if first is None else read_synced(first.facts)
        if synced is None:
            return False
        if synced != (file.number, self.end):
            raise self._damaged(
                file.name,
                self.end,
                f"{self._flaw(content, self.end)}, where {later.name} says that records were durable "
                f"up to {synced.offset} of {file_name(synced.number)}",
            )
        if content.used > self.end:
            self.notes.append(
                f"{self._files.path(file.name)}: {content.used - self.end} bytes behind its last record at "
                f"{self.end} were ignored; the next file says that it ended there"
            )
        return True

    # --- damage or tail -------------------------------------------------------------------------

    def _judge_tails(self, last: JournalFile, content: Content, later: list[JournalFile]) -> None:
        """Everything behind the last record of the last file that holds any is damage or a tail.

        That file may have ended where its zeros begin. A later one began with a record, if it was
        ever written.
        """
        self._judge(last, content, self.end, later)
        for index, file in enumerate(later):
            self._judge(file, self._content(file), FILE_HEADER_BYTES, later[index + 1 :])

    def _judge(
        self, file: JournalFile, content: Content, end: int, later: list[JournalFile]
    ) -> None:
        data, used = content
        if used <= end and file == self.current:
            return
        if next(read_groups(data, end, seed=self._seed, turn=self.last_turn), None) is not None:
            found = "a first record that does not say where the file before it ended"
            raise self._damaged(file.name, end, found)
        holder = self._first_with_records(later)
        if holder is not None:
            found = f"{self._flaw(content, end)}, although {holder.name} holds later records"
            raise self._damaged(file.name, end, found)
        for synced in find_synced(data, end + 1, used, seed=self._seed, turn=self.last_turn):
            if synced.number == file.number and synced.offset > end:
                raise self._damaged(
                    file.name,
                    end,
                    f"{self._flaw(content, end)}, although a later record says that everything before "
                    f"{synced.offset} was durable",
                )
        if used > end:
            self.cuts.append(Cut(file.name, end, used - end, self._flaw(content, end)))

    def _first_with_records(self, later: list[JournalFile]) -> JournalFile | None:
        for file in later:
            data, used = self._files.content(file.name)
            if holds_group(data, FILE_HEADER_BYTES, used, seed=self._seed, turn=self.last_turn):
                return file
        return None

    @property
    def _seed(self) -> int:
        assert self.seed is not None
        return self.seed

    def _flaw(self, content: Content, offset: int) -> str:
        return flaw(content.data, offset, seed=self._seed, turn=self.last_turn)

    def _damaged(self, name: str, offset: int, found: str) -> JournalDamaged:
        return JournalDamaged(
            f"{self._files.path(name)} is damaged at offset {offset}: found {found}. Nothing was "
            "changed. Restore the data directory from a copy; or, to give up everything from that "
            f"place on, keep a copy, cut this file there (truncate -s {offset}; remove it when "
            "that is 0) and remove the journal files after it."
        )

    # --- repairing ------------------------------------------------------------------------------

    def repair(self) -> None:
        """Make the disk hold what `replay` gave out, durably, and nothing behind it.

        Raises `OSError` as the disk does.
        """
        files = self._files
        for name in files.names():
            if _UNFINISHED.fullmatch(name):
                files.remove(name)
        self._name_again()
        for cut in self.cuts:
            _write_zeros(files, cut)
        name = self.current.name
        start = FILE_HEADER_BYTES
        if self._vouched.number == self.current.number:
            start = self._vouched.offset
        if self.end > start:
            files.write(name, start, files.read(name, self.end)[start:])
        for touched in sorted({name, *(cut.file for cut in self.cuts)}):
            files.sync(touched)
        files.sync_directory()

    def _name_again(self) -> None:
        """Rule 6 for names. One that was seen durable holds records; of the others the first is
        named again, and what is after it is removed before, so that no crash leaves a gap."""
        files = self._files
        empty = list(self.spares)
        if self.end == FILE_HEADER_BYTES:
            empty.insert(0, self.current)
        for file in reversed(empty[1:]):
            files.remove(file.name)
            files.sync_directory()
        for file in empty[:1]:
            files.rename(file.name, file.name + TEMPORARY_SUFFIX)
            files.rename(file.name + TEMPORARY_SUFFIX, file.name)
        kept = {file.name for file in (self.current, *empty[:1])}
        self.cuts = [cut for cut in self.cuts if cut.file in kept]
        self.spares = [file for file in self.spares if file.name in kept]


def _in_order(files: Files) -> list[str]:
    """The names of all journal files, by number; refuses a gap."""
    found = sorted(
        (int(match[1]), name) for name in files.names() if (match := _NAME.fullmatch(name))
    )
    for expected, (number, name) in enumerate(found, start=1):
        if number != expected or name != file_name(number):
            raise JournalDamaged(
                f"{files.path(file_name(expected))} is missing, although there is "
                f"{files.path(name)}. Nothing was changed. Put the missing file back, or restore "
                "the data directory from a copy."
            )
    return [name for _number, name in found]


def _write_zeros(files: Files, cut: Cut) -> None:
    done = 0
    while done < cut.length:
        count = min(cut.length - done, len(_ZEROS))
        files.write(cut.file, cut.offset + done, _ZEROS[:count])
        done += count
