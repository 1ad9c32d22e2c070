"""A tail is cut, reported, and never read again."""

from __future__ import annotations

import pytest

from headwater.config.storage import FsyncPolicy
from headwater.errors import JournalDamaged
from headwater.journal.format import batches
from headwater.journal.format.batches import groups_of
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    SYNCED_GROUP_BYTES,
    file_key,
    read_groups,
    read_synced,
)
from headwater.journal.log.journal import Journal
from headwater.journal.log.recovery import Recovery
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import (
    FIRST,
    SECOND,
    SEED,
    Written,
    bytes_of,
    copied,
    correct_manifest,
    fact,
    facts_in,
    open_journal,
    place,
    refused,
    turn_of,
    write_turn,
)

FILE_BYTES = 512

pytestmark = pytest.mark.usefixtures("pieces")


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
def test_a_tail_is_cut_reported_and_never_read_again(tail: bytes) -> None:
    # Given three turns and a tail
    written = Written(3)
    name, end = written.ends[-1]
    written.files.corrupt(name, end, tail)
    # When the store starts
    journal, facts = written.open()
    # Then it has the turns and reports the cut
    assert facts == written.facts
    (cut,) = journal.recovery.cuts
    assert (cut.file, cut.offset, cut.length) == (name, end, len(tail))
    assert str(cut).startswith(f"{FIRST}: cut {len(tail)} bytes at offset {end}: ")
    # And the next turn is written after them, followed by zeros
    write_turn(journal, "next", turn=4)
    after = bytes(written.files.content(name).data)
    assert not any(after[journal._writer.end :])
    assert facts_in(written.files)[0] == [*written.facts, fact("next")]


def test_the_length_of_a_replay_is_known_before_it_begins() -> None:
    # Given files that were ended long before they were full
    written = Written(1)
    for turn in range(2, 10):
        written.journal.rotate()
        write_turn(written.journal, "x", turn=turn)
    # When they are replayed
    recovery = Recovery(written.files)
    expected = recovery.most_bytes()
    assert len(list(groups_of(recovery.batches()))) == 9
    # Then what was expected exceeds that by the zeros of the last file only
    last = len(written.files.content(recovery.current.name).data)
    assert expected == recovery.bytes - recovery.end + last


@pytest.mark.parametrize("piece", [1, 89, 90, 200, 1000])
def test_a_file_is_read_in_pieces_as_at_once(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    # Given a clean stop after records that are smaller and larger than a piece
    written = Written(0, file_bytes=8192)
    texts = ["x" * (number * 37 % 400) for number in range(20)]
    for turn, text in enumerate(texts, start=1):
        write_turn(written.journal, text, turn=turn)
    written.journal.close()
    at_once, expected = facts_in(written.files)
    # When its file is read in pieces
    monkeypatch.setattr(batches, "PIECE_BYTES", piece)
    found, recovery = facts_in(written.files)
    # Then the records and what is known after the last one are the same
    assert found == at_once == [fact(text) for text in texts]
    assert recovery.clean is expected.clean is True
    assert (recovery.end, recovery.last_turn, recovery.last_now_ms, recovery.last_synced) == (
        expected.end,
        expected.last_turn,
        expected.last_now_ms,
        expected.last_synced,
    )
    assert recovery.groups == expected.groups == len(texts)


def test_zeros_after_the_records_are_not_a_tail() -> None:
    written = Written(3)
    written.files.corrupt(FIRST, 4096, bytes(10_000))
    journal, facts = written.open()
    assert facts == written.facts
    assert journal.recovery.cuts == []


def test_garbage_after_the_allocated_space_is_a_tail() -> None:
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


def test_a_whole_record_after_a_torn_one_is_cut_too() -> None:
    """Under everysec and no, the disk may have written a later turn before an earlier one."""
    # Given three turns without an fsync, the second torn, the third whole
    written = Written(3, policy="no")
    _name, end = written.ends[0]
    written.files.corrupt(FIRST, end + 30, b"\xff")
    # When the store starts
    journal, facts = written.open()
    # Then it has the first, and the third does not come back when a new turn exactly fills the gap
    assert facts == written.facts[:1]
    (cut,) = journal.recovery.cuts
    assert (cut.offset, cut.offset + cut.length) == (end, written.ends[2][1])
    buffer = turn_of(journal, [written.facts[1]], turn=2)
    journal._writer.unrecorded_sync = None
    journal.commit(buffer)
    assert journal._writer.end == written.ends[1][1]
    assert facts_in(written.files)[0] == written.facts[:2]


def test_a_tail_in_the_next_file_is_cut_there() -> None:
    # Given a second file in which only the middle of its first write reached the disk
    written = Written(3)
    written.files.corrupt(SECOND, 80, b"middle")
    journal, facts = written.open()
    assert facts == written.facts
    (cut,) = journal.recovery.cuts
    assert (cut.file, cut.offset, cut.length) == (SECOND, 64, 22)
    # Then the first file is continued, and the second one is used after it
    write_turn(journal, "x" * 3500, turn=4)
    write_turn(journal, "y" * 3500, turn=5)
    assert journal._writer.name == SECOND
    assert facts_in(written.files)[0] == [*written.facts, fact("x" * 3500), fact("y" * 3500)]


def test_tails_in_two_files_are_cut() -> None:
    written = Written(3)
    written.files.corrupt(FIRST, written.ends[-1][1], b"torn")
    written.files.corrupt(SECOND, 80, b"middle")
    journal, facts = written.open()
    assert facts == written.facts
    assert [cut.file for cut in journal.recovery.cuts] == [FIRST, SECOND]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["always", "no"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_truncated_file_is_damage_unless_a_record_names_its_end(
    policy: FsyncPolicy, clean: bool
) -> None:
    """It is unknown what followed the end of a file that is too short."""
    # Given a journal of several files, of which the last is a spare
    whole = Written(12, policy=policy, file_bytes=FILE_BYTES, clean=clean)
    before = bytes_of(whole.files)
    last, spare = whole.names()[-2:]
    # When one of them is cut at any byte
    for name in whole.names():
        content = before[name]
        accepted = set()
        for size in range(FILE_BYTES):
            files = copied(whole.files)
            files.cut(name, size)
            outcome = opened(files)
            if isinstance(outcome, str):
                assert place(outcome) <= (name, size)
                assert bytes_of(files) == {**before, name: content[:size]}
                continue
            journal, facts = outcome
            assert facts == whole.facts[: len(facts)]
            assert name == last or facts == whole.facts
            notes = [f"{name} has {size} bytes and was created with {FILE_BYTES}"] * (name == last)
            assert len(journal.recovery.notes) == len(notes)
            assert all(note in journal.recovery.notes[0] for note in notes)
            accepted.add(size)
        # Then the start is refused, unless a record says that the records ended there, and only zeros follow:
        # its own last record, or the first record of the next file. After a clean stop MANIFEST says where
        # it ended
        if name == last:
            ends = own_ends(name, content)
            ends = {max(ends)} if clean else ends
        else:
            ends = set() if name == spare else {dict(whole.ends)[name]}
        assert accepted == {
            size
            for size in range(FILE_BYTES)
            if any(end <= size and not any(content[end:size]) for end in ends)
        }


def opened(files: CrashableFiles) -> tuple[Journal, list[bytes]] | str:
    """Return the result of opening, or the text of its error."""
    try:
        return open_journal(files, file_bytes=FILE_BYTES)
    except JournalDamaged as error:
        return str(error)


def own_ends(name: str, content: bytes) -> set[int]:
    """Return the ends of the file's records which say that everything before them was durable."""
    number = int(name.removeprefix("journal-"))
    return {
        group.end
        for group in read_groups(memoryview(content), 64, seed=SEED, key=file_key(number))
        if read_synced(group.facts) == (number, group.offset)
    }


def test_the_remedy_for_a_short_file_works() -> None:
    written = Written(3)
    name, end = written.ends[1]
    written.files.cut(name, end + 30)
    text = refused(written.files)
    assert place(text) == (name, end)
    assert "in a file of" in text
    assert f"truncate -s {end}, then truncate -s 4096" in text
    written.files.cut(name, end)
    written.files.corrupt(name, 4095, b"\0")
    written.files.remove(SECOND)
    correct_manifest(written.files, text)
    assert written.open()[1] == written.facts[:2]


def test_an_abandoned_replay_unlocks_the_directory() -> None:
    """Whatever exception ends the replay, the same process can open the store again."""
    written = Written(3)
    before = bytes_of(written.files)
    journal = Journal.open(written.files, policy="always")
    with pytest.raises(ZeroDivisionError):
        for group in groups_of(journal.batches()):
            group.turn / 0
    journal.close()
    assert bytes_of(written.files) == before
    assert written.open()[1] == written.facts


def test_a_clean_stop_is_recognized() -> None:
    assert facts_in(Written(3, clean=True).files)[1].clean
    assert not facts_in(Written(3).files)[1].clean
    assert facts_in(Written(0, clean=True).files)[1].end == FILE_HEADER_BYTES + SYNCED_GROUP_BYTES
