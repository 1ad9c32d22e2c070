"""A tail is cut, reported, and never seen again."""

from __future__ import annotations

import pytest

from headwater.errors import JournalDamaged
from headwater.journal.journal import Journal, Policy
from headwater.journal.records import FILE_HEADER_BYTES, SYNCED_GROUP_BYTES
from tests.crash.journal_tools import (
    FIRST,
    SECOND,
    Written,
    bytes_of,
    fact,
    facts_in,
    open_journal,
    place,
    turn_of,
    write_turn,
)

FILE_BYTES = 512


@pytest.mark.parametrize(
    "tail",
    [
        b"garbage",
        b"\xff" * 300,
        b"\x00" * 50 + b"late",
        bytes(turn_of(Written(0).journal, [fact("torn")], turn=4))[:-1],
        bytes(turn_of(Written(0).journal, [fact("stale turn")], turn=2)),
    ],
)
def test_a_tail_is_cut_reported_and_never_seen_again(tail: bytes) -> None:
    # Given three turns and a tail
    written = Written(3)
    name, end = written.ends[-1]
    written.files.corrupt(name, end, tail)
    # When the store starts
    journal, facts = written.open()
    # Then it has the turns, and says what it cut
    assert facts == written.facts
    (cut,) = journal.recovery.cuts
    assert (cut.file, cut.offset, cut.length) == (name, end, len(tail))
    assert str(cut).startswith(f"{FIRST}: cut {len(tail)} bytes at offset {end}: ")
    # And what is written next follows the turns, with zeros behind it
    write_turn(journal, "next", turn=4)
    after = bytes(written.files.content(name).data)
    assert not any(after[journal._end :])
    assert facts_in(written.files)[0] == [*written.facts, fact("next")]


def test_zeros_behind_the_records_are_no_tail() -> None:
    written = Written(3)
    written.files.corrupt(FIRST, 4096, bytes(10_000))
    journal, facts = written.open()
    assert facts == written.facts
    assert journal.recovery.cuts == []


def test_garbage_behind_the_allocated_space_is_a_tail() -> None:
    written = Written(3)
    written.files.corrupt(FIRST, 4096, b"garbage")
    written.files.corrupt(SECOND, 4096, b"garbage")
    journal, facts = written.open()
    assert facts == written.facts
    assert [(cut.file, cut.offset, cut.length) for cut in journal.recovery.cuts] == [
        (FIRST, written.ends[-1][1], 4096 + 7 - written.ends[-1][1]),
        (SECOND, 64, 4096 + 7 - 64),
    ]
    write_turn(journal, "x" * 3900, turn=4)
    write_turn(journal, "y" * 3900, turn=5)
    assert len(facts_in(written.files)[0]) == 5


def test_a_whole_record_behind_a_torn_one_is_cut_with_it() -> None:
    """Under everysec and no, the disk may have written a later turn before an earlier one."""
    # Given turns that no fsync has covered, the second torn, the third whole
    written = Written(3, policy="no")
    _name, end = written.ends[0]
    written.files.corrupt(FIRST, end + 30, b"\xff")
    # When the store starts
    journal, facts = written.open()
    # Then it has the first, and the third cannot come back when a new turn fills the gap exactly
    assert facts == written.facts[:1]
    (cut,) = journal.recovery.cuts
    assert (cut.offset, cut.offset + cut.length) == (end, written.ends[2][1])
    buffer = turn_of(journal, [written.facts[1]], turn=2)
    journal._vouch = None
    journal.commit(buffer)
    assert journal._end == written.ends[1][1]
    assert facts_in(written.files)[0] == written.facts[:2]


def test_a_tail_in_the_next_file_is_cut_there() -> None:
    # Given a first write to the second file, of which only a middle part reached the disk
    written = Written(3)
    written.files.corrupt(SECOND, 80, b"middle")
    journal, facts = written.open()
    assert facts == written.facts
    (cut,) = journal.recovery.cuts
    assert (cut.file, cut.offset, cut.length) == (SECOND, 64, 22)
    # Then the first file goes on, and the second is used when its time comes
    write_turn(journal, "x" * 3500, turn=4)
    write_turn(journal, "y" * 3500, turn=5)
    assert journal._name == SECOND
    assert facts_in(written.files)[0] == [*written.facts, fact("x" * 3500), fact("y" * 3500)]


def test_tails_in_two_files_are_cut() -> None:
    written = Written(3)
    written.files.corrupt(FIRST, written.ends[-1][1], b"torn")
    written.files.corrupt(SECOND, 80, b"middle")
    journal, facts = written.open()
    assert facts == written.facts
    assert [cut.file for cut in journal.recovery.cuts] == [FIRST, SECOND]


@pytest.mark.parametrize("policy", ["always", "no"])
def test_a_file_cut_at_any_byte_gives_a_prefix_or_is_named(policy: Policy) -> None:
    whole = Written(12, policy=policy, file_bytes=FILE_BYTES)
    last = whole.ends[-1][0]
    outcomes = set()
    for name in whole.names():
        for size in range(FILE_BYTES):
            (image,) = whole.files.crash_images(seed=0, count=1)
            files = Written(12, policy=policy, file_bytes=FILE_BYTES).files
            files.cut(name, size)
            del image
            try:
                _journal, facts = open_journal(files, file_bytes=FILE_BYTES)
            except JournalDamaged as error:
                found, offset = place(str(error))
                assert found == name
                assert offset <= size
                outcomes.add("damaged")
                continue
            # What was cut off is gone for good only where it was the last file's
            assert facts == whole.facts[: len(facts)]
            assert facts == whole.facts or name == last
            if facts != whole.facts:
                assert any(f"{name} has {size} bytes" in note for note in _journal.recovery.notes)
                outcomes.add("prefix")
            else:
                outcomes.add("all")
    assert outcomes == {"damaged", "prefix", "all"}


def test_a_replay_that_is_given_up_lets_the_directory_go() -> None:
    """Whatever the reader of the groups fails with, the same process can try again."""
    written = Written(3)
    before = bytes_of(written.files)
    journal = Journal.open(written.files, policy="always")
    with pytest.raises(ZeroDivisionError):
        for group in journal.replay():
            group.turn / 0
    journal.close()
    assert bytes_of(written.files) == before
    assert written.open()[1] == written.facts


def test_a_clean_stop_is_known_as_such() -> None:
    assert facts_in(Written(3, clean=True).files)[1].clean
    assert not facts_in(Written(3).files)[1].clean
    assert facts_in(Written(0, clean=True).files)[1].end == FILE_HEADER_BYTES + SYNCED_GROUP_BYTES
