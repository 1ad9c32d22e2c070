"""Reads a journal: every complete group in order. Then decides whether a tail or damage follows the last one.

A crash leaves a *tail*: bytes of records whose fsync never returned, complete, torn or missing in any
combination. A tail is cut off; none of its records were acknowledged as durable. Anything else that cannot be
read is *damage*: opening fails with file and offset, and nothing on disk is changed.

Rule 1. A place where no complete group follows is damaged if it is known to have been durable: because a
        later file contains records (a file is fsynced before the next is written to), or because a
        complete record at any later byte, with valid checksum and turn, contains the fact ``synced`` for
        a later offset of this file. Otherwise a tail begins there.
Rule 2. The first record of a file names the end of the previous file. If that file ends elsewhere, it is
        damaged. If the first record cannot be read, the file still counts as containing records if a
        complete one begins at any byte of it.
Rule 3. A file gets its name after its header is durable. A file without a header is damaged, unless it is
        a spare: the last file, not the first, with only zeros after the header. Such a file never had a
        record that is known; it is removed and created again.
Rule 4. A file that is shorter than its header says is damaged, because its former content is unknown. The
        exception is a file whose records end where a fact ``synced`` says, with only zeros after that, if
        anything. The fact is the file's own last record, written by a clean stop or a rotation, or the first
        record of the next file. A note is made only if the fact is the last file's own record, because more may
        have followed a clean stop. No note is made if a crash followed a rotation: MANIFEST says that this end was
        durable and names a file that was created afterwards. So nothing was written after this end, and the
        journal continues in the next file.
Rule 5. Files are numbered without a gap, from the first that MANIFEST names to its last or later; without
        MANIFEST, from 1 on. A missing file is damage.
Rule 6. Records that end before the floor of MANIFEST are damage.
Rule 7. A bad record that one flipped bit explains is damage (`headwater.journal.log.flipped`).

Then `headwater.journal.log.starting` changes the files.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.errors import JournalDamaged, StoreUnusable
from headwater.journal.disk.content import Content
from headwater.journal.disk.files import Files
from headwater.journal.format.batches import JournalBatch, PieceReader
from headwater.journal.format.failures import MANIFEST_NAME, damaged_file
from headwater.journal.format.names import JournalFile, file_name, names_in_order, number_of
from headwater.journal.format.records import (
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
from headwater.journal.images.catalog import Catalog
from headwater.journal.log.flipped import flipped_bit
from headwater.journal.log.report import Cut, RecoveryReport


class Recovery:
    """The content of a journal's files, after the image if there is one.

    The constructor reads names and headers. `batches` reads the groups, once, and sets the other attributes.
    Then `starting.repair` changes the files. The constructor and `batches` raise `JournalDamaged`, and
    `StoreUnusable` for a format of a later version. An empty directory is an empty journal; its ``seed`` is None.

        catalog                          the content of MANIFEST
        groups, last_turn                the number of the engine's groups that were read, and the last turn
        last_now_ms                      the latest time of any of them, and of the image
        offset                           the offset of the store after these groups
        cuts                             the tails that are cut off
        notes                            sentences for the log about anomalies that lose nothing
                                         acknowledged or cannot be judged
        current, end                     the last file with records, and the offset of their end
        spares                           the files after ``current``, allocated and empty
        damaged_spare                    the name of a last, empty file without a header, or None
        last_synced                      the last fact ``synced`` that was read
        bytes                            the size of all groups and headers in journal files
        clean                            True if the last record says that all before it is durable
    """

    def __init__(self, files: Files, catalog: Catalog | None = None) -> None:
        self._files = files
        self.catalog = catalog = catalog if catalog is not None else Catalog(files)
        self.seed = None if catalog.manifest is None else catalog.manifest.seed
        self.groups = 0
        self.last_turn = self.last_now_ms = self.offset = 0
        if catalog.image is not None:
            self.last_turn, self.last_now_ms = catalog.image.turn, catalog.image.now_ms
            self.offset = catalog.image.offset
        self.cuts: list[Cut] = []
        self.notes: list[str] = []
        self.end = 0
        self.bytes = 0
        self.clean = False
        self.crashed = False
        """True if the store was not stopped cleanly, and was not a replica."""
        self.last_synced = Synced(0, 0)
        self.damaged_spare: str | None = None
        self._found: list[JournalFile] = []
        self._found = self._known_files(names_in_order(files, catalog.first, catalog.last))
        self.current = self._found[0] if self._found else JournalFile(0, 0)
        self.spares: list[JournalFile] = []

    def _known_files(self, names: list[str]) -> list[JournalFile]:
        if len(names) > 1 and self._is_damaged_spare(names[-1]):
            self.damaged_spare = names.pop()
            self.notes.append(
                f"{self._files.path(self.damaged_spare)}: its header cannot be read. It is the last "
                "file and contains only zeros, so it was a spare without records; it is created again"
            )
        return [self._known(name) for name in names]

    def _is_damaged_spare(self, name: str) -> bool:
        """Return whether the file is a spare with a damaged header (rule 3)."""
        if read_file_header(self._files.read(name, FILE_HEADER_BYTES)) is not None:
            return False
        content = self._files.content(name)
        # A file that is shorter than a header was truncated, and its former content is unknown.
        return content.used <= FILE_HEADER_BYTES <= content.size

    def _known(self, name: str) -> JournalFile:
        """Return the file with this name, if its header matches the name."""
        number = number_of(name)
        header = read_file_header(memoryview(self._files.reads.at(name, 0, FILE_HEADER_BYTES)))
        if header is None:
            raise self.damaged(name, 0, "no header of a journal file")
        if not 1 <= header.version <= FORMAT_VERSION:
            raise StoreUnusable(
                f"{self._files.path(name)} has format {header.version}; this version of Headwater "
                f"reads formats up to {FORMAT_VERSION}. Start it with the version that wrote it, or later."
            )
        if header.number != number:
            raise self.damaged(name, 0, f"the header of {file_name(header.number)}")
        if self.seed is None:
            self.seed = header.seed
        elif self.seed != header.seed:
            raise self.damaged(name, 0, "the header of a file of another store")
        return JournalFile(number, header.size, header.version)

    def most_bytes(self) -> int:
        """Return an upper bound for the bytes of records: the total size of the files that have records, where
        each file but the last one counts up to its last record."""
        sizes: list[int] = []
        for file in self._found:
            first = self._first_group(file) if sizes else None
            if first is None and sizes:
                continue
            synced = None if first is None else read_synced(first.facts)
            if synced is not None:
                sizes[-1] = min(sizes[-1], synced.offset)
            sizes.append(file.size)
        return sum(sizes)

    @property
    def is_empty(self) -> bool:
        """True if the directory has no journal file."""
        return not self._found

    def end_here(self) -> None:
        """Let the journal end with the last file that has records now. A server may continue to write: the bytes
        that it adds to this file are not read, so a record in a later file would contradict what was read."""
        while len(self._found) > 1:
            name = self._found[-1].name
            used = self._files.content(name).used
            self._files.close(name)
            if used > FILE_HEADER_BYTES:
                break
            self._found.pop()

    def reread(self) -> Recovery:
        """Return a new recovery of the same files, including bytes written since."""
        return Recovery(self._files)

    def path(self, name: str) -> str:
        """Return the path of a file of this journal, for messages."""
        return self._files.path(name)

    def report(self) -> RecoveryReport:
        """Return the public report of the findings."""
        return RecoveryReport(self.groups, tuple(self.cuts), tuple(self.notes))

    # --- reading --------------------------------------------------------------------------------

    def batches(self) -> Iterator[JournalBatch]:
        """Yield the engine's groups in the journal files, oldest first.

        Raises `JournalDamaged` at a damaged place; the groups before it have been yielded.
        """
        for index, file in enumerate(self._found):
            self.current = file
            content = self._files.content(file.name)
            yield from self._batches_of(file, content)
            self.bytes += self.end if self.end > FILE_HEADER_BYTES else 0
            later = self._found[index + 1 :]
            continued = bool(later) and self._is_continued(file, content, later[0])
            self._refuse_short(file, content, named=continued or self.clean)
            if not continued:
                self._note_short(file, content)
                self._judge_tails(file, content, later)
                self._refuse_before_floor(file, content)
                self.spares = later
                break
            self.catalog.closed.append(Synced(file.number, self.end))
            self.catalog.reached[file.number] = self.offset
            # Nothing writes to the file any more, and there may be more files than descriptors.
            self._files.close(file.name)

    def _refuse_before_floor(self, last: JournalFile, content: Content) -> None:
        """Raise `JournalDamaged` if the records end before the floor of MANIFEST (rule 6)."""
        floor = self.catalog.floor
        if (last.number, self.end) < floor:
            raise self.damaged(
                last.name,
                self.end,
                f"{self._flaw(last, content, self.end)}, although {MANIFEST_NAME} says that records were "
                f"durable up to offset {floor.offset} of {file_name(floor.number)}",
            )

    def _refuse_short(self, file: JournalFile, content: Content, *, named: bool) -> None:
        """Raise `JournalDamaged` for a short file (rule 4). ``named`` is True if a fact names its records' end."""
        size = content.size
        if size >= file.size:
            return
        if not named or content.used > self.end:
            raise self.damaged(
                file.name,
                self.end,
                f"{self._flaw(file, content, self.end)}, in a file of {size} bytes that was created "
                f"with {file.size}, so what followed them is unknown",
                size=file.size,
            )

    def _note_short(self, file: JournalFile, content: Content) -> None:
        """Add a note if the last file with records, the end of which its own last record names, is short."""
        size = content.size
        if size < file.size:
            self.notes.append(
                f"{self._files.path(file.name)} has {size} bytes and was created with {file.size}: its last "
                "record says that it ends there, as after a clean stop; what may have followed is unknown"
            )

    def _batches_of(self, file: JournalFile, content: Content) -> Iterator[JournalBatch]:
        self.end, self.clean = FILE_HEADER_BYTES, False
        reader = PieceReader(
            file.name, content, content.size, number=file.number, seed=self._seed, key=file.key
        )
        before = self.offset
        for batch in reader.batches(FILE_HEADER_BYTES, self.last_turn):
            self.groups += len(batch.starts)
            self._took(reader, before)
            yield batch
        self._took(reader, before)
        if reader.foreign is not None:
            raise self._foreign(file, reader.foreign)

    def _took(self, reader: PieceReader, before: int) -> None:
        """Take over the values of the reader after the groups that were read last. ``before`` is the offset of the
        store at the start of the file."""
        self.end, self.last_turn, self.clean = reader.offset, reader.turn, reader.clean
        self.last_now_ms = max(self.last_now_ms, reader.last_now_ms)
        self.last_synced = reader.last_synced or self.last_synced
        self.offset = before + reader.counted

    def _foreign(self, file: JournalFile, facts: memoryview) -> JournalDamaged:
        """Return the error for a fact that the journal never writes."""
        synced = read_synced(facts)
        found = f"a fact of unknown kind {facts[0]:#04x}"
        if synced is not None:
            found = f"a record that declares a later offset, {synced.offset}, durable"
        return self.damaged(file.name, self.end, found)

    def _is_continued(self, file: JournalFile, content: Content, later: JournalFile) -> bool:
        """Return whether the next file begins with a record that names the end of this one, or has no record yet
        because a crash followed the rotation."""
        first = self._first_group(later)
        if first is None:
            return self._was_rotated(file, content)
        synced = read_synced(first.facts)
        if synced is None:
            return False
        if synced != (file.number, self.end):
            raise self.damaged(
                file.name,
                self.end,
                f"{self._flaw(file, content, self.end)}, but {later.name} says that records were durable "
                f"up to offset {synced.offset} of {file_name(synced.number)}",
            )
        if content.used > self.end:
            self.notes.append(
                f"{self._files.path(file.name)}: {content.used - self.end} bytes after its last record at "
                f"{self.end} were ignored; the next file says that it ended there"
            )
        return True

    def _was_rotated(self, file: JournalFile, content: Content) -> bool:
        """Return whether a rotation has ended this file and continued in the next one, which has no record yet
        (rule 4)."""
        catalog = self.catalog
        ended = self.clean and content.used <= self.end
        return ended and catalog.floor == (file.number, self.end) and catalog.last > file.number + 1

    def _first_group(self, file: JournalFile) -> Group | None:
        """Return the first record of a later file, which is the journal's own; None if the file has no record."""
        size = FILE_HEADER_BYTES + SYNCED_GROUP_BYTES
        head = memoryview(self._files.reads.at(file.name, 0, size))
        return next(self._read(file, head, FILE_HEADER_BYTES), None)

    # --- damage or tail -------------------------------------------------------------------------

    def _judge_tails(self, last: JournalFile, content: Content, later: list[JournalFile]) -> None:
        """Judge everything after the last record of the last file with records: it is damage or a tail.

        The last file may end where its zeros begin. A later file begins with a record if it was ever
        written.
        """
        self._judge(last, content, self.end, later)
        for index, file in enumerate(later):
            content = self._files.content(file.name)
            if content.size < file.size:
                found = f"a file of {content.size} bytes that was created with {file.size}"
                raise self.damaged(file.name, FILE_HEADER_BYTES, found, size=file.size)
            self._judge(file, content, FILE_HEADER_BYTES, later[index + 1 :])

    def _judge(
        self, file: JournalFile, content: Content, end: int, later: list[JournalFile]
    ) -> None:
        used = content.used
        if used <= end and file == self.current:
            return
        data = content.data
        if next(self._read(file, data, end), None) is not None:
            found = "a first record that does not say where the previous file ended"
            raise self.damaged(file.name, end, found)
        holder = self._first_with_records(later)
        if holder is not None:
            found = f"{self._flaw(file, content, end)}, although {holder.name} holds later records"
            raise self.damaged(file.name, end, found)
        for synced in find_synced(
            data, end + 1, used, seed=self._seed, turn=self.last_turn, key=file.key
        ):
            if synced.number == file.number and synced.offset > end:
                raise self.damaged(
                    file.name,
                    end,
                    f"{self._flaw(file, content, end)}, although a later record says that everything before "
                    f"{synced.offset} was durable",
                )
        self._refuse_flipped(file, content, end)
        if used > end:
            self.cuts.append(Cut(file.name, end, used - end, self._flaw(file, content, end)))

    def _refuse_flipped(self, file: JournalFile, content: Content, end: int) -> None:
        """Raise `JournalDamaged` if one flipped bit explains the bad record (rule 7)."""
        flipped = flipped_bit(content.data, end, seed=self._seed, turn=self.last_turn, key=file.key)
        if flipped is not None:
            raise self.damaged(
                file.name,
                end,
                f"{self._flaw(file, content, end)}; it would be valid if bit {flipped[1]} of the byte at "
                f"{flipped[0]} were flipped",
            )

    def _first_with_records(self, later: list[JournalFile]) -> JournalFile | None:
        for file in later:
            content = self._files.content(file.name)
            data, used = content.data, content.used
            if holds_group(
                data, FILE_HEADER_BYTES, used, seed=self._seed, turn=self.last_turn, key=file.key
            ):
                return file
        return None

    @property
    def _seed(self) -> int:
        assert self.seed is not None
        return self.seed

    def _read(self, file: JournalFile, data: memoryview, offset: int) -> Iterator[Group]:
        return read_groups(data, offset, seed=self._seed, turn=self.last_turn, key=file.key)

    def _flaw(self, file: JournalFile, content: Content, offset: int) -> str:
        return flaw(content.data, offset, seed=self._seed, turn=self.last_turn, key=file.key)

    def damaged(
        self, name: str, offset: int, found: str, *, size: int | None = None
    ) -> JournalDamaged:
        """Return the error for damage at this place. ``size`` is the file's allocated size; None looks it up."""
        if size is None:
            size = next((file.size for file in self._found if file.name == name), 0)
        known = self.catalog.manifest is not None
        return damaged_file(self._files, name, offset, found, size=size, manifest=known)
