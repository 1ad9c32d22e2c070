"""The journal on a real disk, in real processes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.errors import ForkedStore, JournalDamaged, StoreInUse
from headwater.journal.disk.files import DiskFiles
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import MANIFEST, correct_manifest, fact, open_journal, write_turn

FILE_BYTES = 512


def test_a_journal_on_disk_is_recovered(tmp_path: Path) -> None:
    journal, _ = open_journal(DiskFiles(tmp_path), file_bytes=8192)
    with pytest.raises(StoreInUse, match=f"process {os.getpid()}"):
        open_journal(DiskFiles(tmp_path))
    texts = [f"turn {number}" * number for number in range(1, 120)]
    for turn, text in enumerate(texts, start=1):
        write_turn(journal, text, turn=turn)
    # Given no clean stop
    journal.files.unlock()
    again, facts = open_journal(DiskFiles(tmp_path), policy="everysec")
    assert facts == [fact(text) for text in texts]
    write_turn(again, "last", turn=1000)
    again.close()
    _last, facts = open_journal(DiskFiles(tmp_path))
    assert facts[-1] == fact("last")
    _last.close()


def test_a_directory_is_unlocked_if_a_start_fails(tmp_path: Path) -> None:
    (tmp_path / "journal-000001").write_bytes(b"not a journal")
    for _ in range(2):
        with pytest.raises(Exception, match="no header of a journal file"):
            open_journal(DiskFiles(tmp_path))


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_child_cannot_use_the_journal(tmp_path: Path) -> None:
    journal, _ = open_journal(DiskFiles(tmp_path), policy="everysec", file_bytes=8192)
    write_turn(journal, "parent", turn=1)
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        refused = 0
        calls: list[Callable[[], object]] = [
            lambda: journal.commit(bytearray(b"child")),
            lambda: journal.admits(10_000),
            journal.close,
        ]
        for call in calls:
            try:
                call()
            except ForkedStore:
                refused += 1
            except BaseException:
                # The child must not continue with the tests.
                os._exit(1)
        os.write(go, bytes([refused]))
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.read(ready, 1) == bytes([3])
    os.waitpid(child, 0)
    os.close(ready)
    os.close(go)
    write_turn(journal, "parent again", turn=2)
    journal.close()
    again, facts = open_journal(DiskFiles(tmp_path))
    assert facts == [fact("parent"), fact("parent again")]
    again.close()


def test_the_remedy_in_the_error_works(tmp_path: Path) -> None:
    """Zeros from the named offset on and no later files: everything before is recovered."""
    # Given a journal on disk with a flipped bit in its second file
    journal, _ = open_journal(DiskFiles(tmp_path), file_bytes=FILE_BYTES)
    facts = [f"turn {turn}" for turn in range(1, 31)]
    for turn, text in enumerate(facts, start=1):
        write_turn(journal, text, turn=turn)
    journal.close()
    damaged = tmp_path / "journal-000002"
    content = bytearray(damaged.read_bytes())
    content[200] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(JournalDamaged) as caught:
        open_journal(DiskFiles(tmp_path), file_bytes=FILE_BYTES)
    assert f"`headwater repair {tmp_path} --to NEWDIR --dry-run`" in str(caught.value)
    # When the remedy by hand is applied
    match = re.search(r"truncate -s (\d+), then truncate -s (\d+)", str(caught.value))
    assert match
    for size in match.groups():
        os.truncate(damaged, int(size))
    for later in sorted(tmp_path.glob("journal-*")):
        if later.name > "journal-000002":
            later.unlink()
    memory = CrashableFiles()
    memory.create(MANIFEST, 0)
    memory.corrupt(MANIFEST, 0, (tmp_path / MANIFEST).read_bytes())
    correct_manifest(memory, str(caught.value))
    (tmp_path / MANIFEST).write_bytes(memory.content(MANIFEST).data)
    # Then the store starts with what was written before that place, and accepts writes
    journal, found = open_journal(DiskFiles(tmp_path), file_bytes=FILE_BYTES)
    assert 3 < len(found) < 15
    assert found == [fact(text) for text in facts[: len(found)]]
    assert damaged.stat().st_size == FILE_BYTES
    write_turn(journal, "and on", turn=31)
    journal.close()
