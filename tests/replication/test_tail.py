"""What a replica lacks is read from journal files, from any offset on, while they are written."""

from __future__ import annotations

from itertools import accumulate
from random import Random

import pytest

from headwater.errors import JournalDamaged
from headwater.journal.format.checksum import LOCAL_KIND
from headwater.journal.log.journal import Journal
from headwater.journal.log.tail import JournalTail, NoSuchOffset
from headwater.server.services.replication.link import Groups, LinkReader
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import fact, open_journal, turn_of

LOCAL = bytes([LOCAL_KIND]) + b"where bodies are"


def written(seed: int, turns: int = 40) -> tuple[Journal, list[bytes]]:
    """Return a journal of small files, and the facts that count in it."""
    random, counted = Random(seed), []
    journal = open_journal(CrashableFiles(), file_bytes=512)[0]
    for turn in range(1, turns):
        facts = [
            LOCAL if random.random() < 0.2 else fact(random.randbytes(random.randrange(1, 300)))
            for _ in range(random.randrange(1, 4))
        ]
        buffer = turn_of(journal, facts, turn=turn)
        assert journal.admits(len(buffer)) is None
        journal.commit(buffer)
        counted += [one for one in facts if one != LOCAL]
    return journal, counted


def read_all(journal: Journal, tail: JournalTail) -> list[bytes]:
    """Return the facts of all groups that a tail reads."""
    reader, found = LinkReader(journal.seed), []
    while not tail.ended(journal.end()):
        reader.feed(bytes(tail.read(journal.end(), journal.catalog.reached)))
        for groups in reader.read():
            assert isinstance(groups, Groups)
            rows = zip(groups.starts, groups.ends, strict=True)
            found += [bytes(groups.data[start:end]) for start, end in rows]
    assert tail.offset == journal.offset
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_tail_has_everything_that_counts_from_each_offset_on(seed: int) -> None:
    # Given a journal of many files, with facts that concern only its own directory
    journal, facts = written(seed)
    assert len(journal.catalog.reached) > 5
    # When it is read from the end of each group on
    for number, offset in enumerate([0, *accumulate(map(len, facts))]):
        tail = journal.tail(offset)
        assert tail is not None
        # Then exactly the later groups are found
        assert read_all(journal, tail) == facts[number:]


def test_an_offset_inside_a_group_is_refused() -> None:
    journal, _facts = written(1)
    tail = journal.tail(1)
    assert tail is not None
    with pytest.raises(NoSuchOffset):
        read_all(journal, tail)


def test_a_restart_knows_the_same_offsets() -> None:
    # Given a journal, stopped and opened again
    journal, facts = written(2)
    journal.close()
    again, _found = open_journal(journal.files, file_bytes=512)
    # When it is read from the middle on, then everything after that is found
    tail = again.tail(sum(map(len, facts[:20])))
    assert tail is not None
    assert read_all(again, tail) == facts[20:]


def test_a_file_that_lost_a_record_is_damaged_not_shorter() -> None:
    # Given a closed journal file whose last record cannot be read
    journal, _facts = written(3)
    name = "journal-000002"
    used = journal.files.content(name).used
    assert isinstance(journal.files, CrashableFiles)
    journal.files.corrupt(name, used - 60, bytes(60))
    # When a tail reads it
    tail = journal.tail(0)
    assert tail is not None
    with pytest.raises(JournalDamaged, match="journal-000002"):
        read_all(journal, tail)
