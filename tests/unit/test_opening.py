"""A record that cannot be applied is damage with its place, whatever the exception."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.config.config import Config
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.errors import JournalDamaged
from headwater.journal.disk.files import DiskFiles
from headwater.journal.log.journal import Journal
from headwater.persistence.dumping import DumpedGroup, dumped_groups
from headwater.server.opening import open_node
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import (
    FIRST,
    bytes_of,
    correct_manifest,
    open_journal,
    place,
    turn_of,
)
from tests.unit.test_facts import GOLDEN


def journal_of(*facts: bytes) -> tuple[CrashableFiles, list[int]]:
    """Write a journal with one turn per fact. Return its files and the end of each turn's groups."""
    files, ends = CrashableFiles(), []
    journal, _ = open_journal(files, policy="no", file_bytes=8192)
    for turn, fact in enumerate(facts, start=1):
        journal.commit(turn_of(journal, [fact], turn=turn))
        ends.append(journal._writer.end)
    journal.close()
    return files, ends


FACTS = {name: bytes.fromhex(text) for name, text in GOLDEN.items()}


UNFIT = pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ([FACTS["string_set"], FACTS["appended"]], "KeyError"),
        ([FACTS["string_set"], FACTS["acknowledged"]], "KeyError"),
        ([FACTS["string_set"], FACTS["string_set"] + b"\x99"], "ValueError"),
        ([FACTS["string_set"], FACTS["string_set"][:-1]], "ValueError"),
        ([FACTS["stream_created"] + FACTS["appended"], FACTS["appended"]], "AssertionError"),
        ([FACTS["string_set"], b"\x11\xfe" + FACTS["string_set"][2:]], "IndexError"),
    ],
)
"""Facts that do not fit the earlier ones."""


@UNFIT
def test_a_record_that_cannot_be_applied_is_damage_with_its_place(
    facts: list[bytes], cause: str
) -> None:
    # Given a whole record with a valid checksum whose facts do not fit the earlier ones
    files, ends = journal_of(*facts)
    before = bytes_of(files)
    # When the store is opened
    with pytest.raises(JournalDamaged) as caught:
        open_node(Config(), files=files)
    # Then the error names file and offset, its cause is chained, and nothing was changed
    assert place(str(caught.value)) == (FIRST, ends[0])
    assert f"a whole record that cannot be applied ({cause}" in str(caught.value)
    assert type(caught.value.__cause__).__name__ == cause
    assert bytes_of(files) == before
    # And the directory is unlocked, so that the remedy can be applied and the store opened
    files.corrupt(FIRST, ends[0], bytes(8192 - ends[0]))
    correct_manifest(files, str(caught.value))
    open_node(Config(), files=files).close()


@UNFIT
def test_a_list_of_the_journal_ends_there_with_the_same_error(
    facts: list[bytes], cause: str, tmp_path: Path
) -> None:
    # Given a directory with such a record
    files, ends = journal_of(*facts)
    for name, content in bytes_of(files).items():
        (tmp_path / name).write_bytes(content)
    # When its record groups are listed one by one
    listed: list[DumpedGroup] = []
    with pytest.raises(JournalDamaged, match=rf"cannot be applied \({cause}") as caught:
        listed.extend(dumped_groups(DiskFiles(tmp_path)))
    # Then the error names the place
    assert place(str(caught.value).replace(f"{tmp_path}/", "memory:/")) == (FIRST, ends[0])


@pytest.mark.parametrize("error", [MemoryError, lambda: OSError(5, "Input/output error")])
def test_an_error_of_the_machine_is_not_reported_as_damage(
    error: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, _ends = journal_of(FACTS["string_set"])

    class Failing:
        def __init__(self, keyspace: Keyspace) -> None:
            pass

        def apply_batch(self, *_batch: object) -> None:
            raise error()

    monkeypatch.setattr("headwater.persistence.applying.Replay", Failing)
    with pytest.raises(type(error())):
        open_node(Config(), files=files)
    monkeypatch.undo()
    open_node(Config(), files=files).close()


def test_a_duplicated_record_is_not_applied_twice() -> None:
    """A repeated RPUSH would change the list without an error."""
    files, ends = journal_of(FACTS["string_set"], FACTS["list_pushed"], FACTS["string_set"])
    content = bytes(files.content(FIRST).data)
    doubled = content[: ends[1]] + content[ends[0] : ends[1]] + content[ends[1] :]
    files.corrupt(FIRST, 0, doubled)
    with pytest.raises(JournalDamaged) as caught:
        open_node(Config(), files=files)
    assert place(str(caught.value)) == (FIRST, ends[1])


def test_a_journal_that_was_refused_is_closed() -> None:
    files, _ends = journal_of(FACTS["appended"])
    for _ in range(2):
        with pytest.raises(JournalDamaged):
            open_node(Config(), files=files)
    Journal.open(files, policy="always").close()
