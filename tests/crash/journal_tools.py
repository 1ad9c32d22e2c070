"""Helpers for tests of the journal: write turns, and read a journal with or without opening it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from headwater.common.limits import JOURNAL_FILE_BYTES
from headwater.config.storage import FsyncPolicy
from headwater.errors import JournalDamaged
from headwater.journal.disk.files import Files
from headwater.journal.format import batches, records
from headwater.journal.format.batches import JournalBatch, groups_of
from headwater.journal.format.checksum import LOCAL_KIND, bind_groups
from headwater.journal.format.manifest import ImageEntry
from headwater.journal.format.records import (
    GROUP_HEADER_BYTES,
    begin_group,
    file_key,
    read_groups,
    seal_group,
)
from headwater.journal.images.images import ImageWriter, read_image
from headwater.journal.images.rotation import Rotation
from headwater.journal.log import recovery
from headwater.journal.log.closed import read_closed
from headwater.journal.log.journal import Journal
from headwater.journal.log.recovery import Recovery
from headwater.testing.files import CrashableFiles

Checksum = Callable[[int, memoryview, int, int], int]
"""A function like `checksum.extend_view`."""

SEED = 0x5EED
FIRST, SECOND, THIRD = "journal-000001", "journal-000002", "journal-000003"
MANIFEST = "MANIFEST"


def flip_bit(files: CrashableFiles, name: str, at: int, bit: int) -> None:
    """Flip a bit (0 to 7) of the byte at an offset of a file."""
    files.corrupt(name, at, bytes([files.content(name).data[at] ^ 1 << bit]))


class WatchedJournal:
    """A journal that reports each commit before it is executed: what it writes, and whether a client waits
    for its fsync."""

    def __init__(self, journal: Journal, committing: Callable[[bytearray, bool], object]) -> None:
        self._journal = journal
        self._committing = committing

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    def commit(self, buffer: bytearray, *, sync: bool = True) -> int:
        self._committing(buffer, sync)
        return self._journal.commit(buffer, sync=sync)


def command_bytes(buffer: bytearray, seed: int) -> int:
    """Return the size of a turn's groups, without those that only say where blocks are on disk."""
    groups = read_groups(memoryview(bytes(buffer)), 0, seed=seed)
    return sum(
        GROUP_HEADER_BYTES + len(group.facts) for group in groups if group.facts[0] != LOCAL_KIND
    )


def fact(text: str | bytes) -> bytes:
    """Return a fact of the engine: a kind that is not the journal's, and a text."""
    return b"\x20" + (text.encode() if isinstance(text, str) else text)


def open_journal(
    files: Files,
    *,
    policy: FsyncPolicy = "always",
    file_bytes: int = JOURNAL_FILE_BYTES,
    seed: int = SEED,
) -> tuple[Journal, list[bytes]]:
    """Return a journal that can be written, and the facts in it, one item for each group.

    Its flusher never runs: tests call `Flusher.flush_once`.
    """
    journal = Journal.open(
        files, policy=policy, file_bytes=file_bytes, seed=seed, flush_interval=1e6
    )
    facts = [] if journal.image is None else image_facts_in(files, journal.image, journal.seed)
    return journal, facts + [bytes(group.facts) for group in groups_of(journal.batches())]


def image_facts_in(files: Files, entry: ImageEntry, seed: int) -> list[bytes]:
    """Return the facts in an image, one item for each group."""
    return facts_of(read_image(files, entry, seed))


def facts_of(read: Iterable[JournalBatch]) -> list[bytes]:
    """Return the facts in batches, one item for each group."""
    return [bytes(group.facts) for batch in read for group in batch.groups()]


def facts_at(journal: Journal, rotation: Rotation) -> list[bytes]:
    """Return the facts of the state of a rotation, read as the maker of an image reads them."""
    files, image, seed = journal.files, journal.image, journal.seed
    facts = [] if image is None else image_facts_in(files, image, seed)
    turn = 0 if image is None else image.turn
    return facts + facts_of(read_closed(files, rotation.closed, rotation.end, seed, turn))


def write_image(journal: Journal, rotation: Rotation, facts: Iterable[bytes]) -> ImageEntry:
    """Write an image of these facts, one group for each. After an error of the disk it is abandoned."""
    writer = ImageWriter(journal.files, rotation, journal.seed)
    try:
        for one in facts:
            writer.write(bytearray(one))
        return writer.finish()
    except OSError:
        writer.abandon()
        raise


def turn_of(journal: Journal, facts: Sequence[bytes], *, turn: int) -> bytearray:
    """Return the buffer of one turn, with a sealed group for each of ``facts``."""
    buffer = bytearray()
    for one in facts:
        mark = begin_group(buffer)
        buffer += one
        seal_group(buffer, mark, turn, 1_000_000 + turn, journal.seed)
    return buffer


def write_turn(journal: Journal, *texts: str | bytes, turn: int, sync: bool = True) -> None:
    """Write one turn like the node does: admit, then commit."""
    buffer = turn_of(journal, [fact(text) for text in texts], turn=turn)
    assert journal.admits(len(buffer)) is None
    journal.commit(buffer, sync=sync)
    assert not buffer


def facts_in(files: Files) -> tuple[list[bytes], Recovery]:
    """Return the facts in an image and a journal, without changing them."""
    recovery = Recovery(files)
    image, seed = recovery.catalog.image, recovery.seed
    facts = [] if image is None else image_facts_in(files, image, seed or 0)
    return facts + [bytes(group.facts) for group in groups_of(recovery.batches())], recovery


def bound(groups: bytes | bytearray, number: int, offset: int) -> bytes:
    """Return sealed groups bound to ``offset`` of file ``number``."""
    buffer = bytearray(groups)
    bind_groups(buffer, 0, len(buffer), file_key(number), offset)
    return bytes(buffer)


class Written:
    """A journal of some turns, by default without a clean stop, and where the groups of each turn end."""

    def __init__(
        self,
        turns: int,
        *,
        policy: FsyncPolicy = "always",
        file_bytes: int = 4096,
        clean: bool = False,
    ) -> None:
        self.files = CrashableFiles()
        journal, _ = open_journal(self.files, policy=policy, file_bytes=file_bytes)
        self.facts: list[bytes] = []
        self.ends: list[tuple[str, int]] = []
        for turn in range(1, turns + 1):
            text = f"turn {turn} " + "x" * (turn % 7)
            write_turn(journal, text, turn=turn)
            self.facts.append(fact(text))
            self.ends.append((journal._writer.name, journal._writer.end))
        self.journal = journal
        if clean:
            journal.close()
        self.files._locked = False

    def names(self) -> list[str]:
        return journal_names(self.files)

    def open(self) -> tuple[Journal, list[bytes]]:
        return open_journal(self.files, file_bytes=4096)


def bytes_of(files: CrashableFiles) -> dict[str, bytes]:
    return {name: bytes(files.content(name).data) for name in files.names()}


def copied(files: CrashableFiles) -> CrashableFiles:
    """Return a copy of the files."""
    copy = CrashableFiles()
    for name, content in bytes_of(files).items():
        copy.create(name, len(content))
        copy.corrupt(name, 0, content)
    return copy


def correct_manifest(files: CrashableFiles, text: str) -> None:
    """Apply the part of the remedy in an error that concerns MANIFEST."""
    content = bytes(files.content(MANIFEST).data).decode()
    last, floor, edited = re.findall(r"'(last \d+|floor \d+ \d+|crc32c edited)'", text)
    content = re.sub("(?m)^last .*$", last, content)
    content = re.sub("(?m)^floor .*$", floor, content)
    content = re.sub("(?m)^crc32c .*$", edited, content)
    files.cut(MANIFEST, 0)
    files.corrupt(MANIFEST, 0, content.encode())


def journal_names(files: Files) -> list[str]:
    """Return the names of the journal files."""
    return [name for name in files.names() if name.startswith("journal-")]


def refused(files: CrashableFiles) -> str:
    """Return the text of the error with which opening is refused. Checks that nothing is changed."""
    before = bytes_of(files)
    with pytest.raises(JournalDamaged) as caught:
        open_journal(files)
    assert bytes_of(files) == before
    assert "Nothing was changed." in str(caught.value)
    return str(caught.value)


def place(text: str) -> tuple[str, int]:
    """Return the file and the offset that an error names."""
    match = re.match(r"memory:/(\S+) is damaged at offset (\d+): ", text)
    assert match, text
    return match[1], int(match[2])


def small_pieces(patches: pytest.MonkeyPatch, size: int) -> None:
    """Let files be read in pieces of this size, so that small files are read in several."""
    patches.setattr(batches, "PIECE_BYTES", size)


def read_with(monkeypatch: pytest.MonkeyPatch, checksum: Checksum) -> None:
    """Read journals in plain Python with this function for the checksum. In compiled modules it cannot be
    replaced."""
    plain = _plain("records")
    monkeypatch.setattr(plain, "extend_view", checksum)
    for name in ("find_synced", "flaw", "holds_group", "read_groups"):
        monkeypatch.setattr(recovery, name, getattr(plain, name))
    scanning = _plain("batches")
    monkeypatch.setattr(scanning, "whole_group", plain.whole_group)
    monkeypatch.setattr(recovery, "PieceReader", scanning.PieceReader)


def _plain(module: str) -> ModuleType:
    """Return a module of the journal as plain Python."""
    source = Path(records.__file__).with_name(f"{module}.py")
    spec = importlib.util.spec_from_file_location(f"tests.crash.plain_{module}", source)
    assert spec is not None
    assert spec.loader is not None
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    return plain
