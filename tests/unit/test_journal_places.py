"""In format 2 a record is valid only at the place where it was written. Files of format 1 stay usable."""

from __future__ import annotations

import itertools
import struct

import pytest

from headwater.config.storage import FsyncPolicy
from headwater.errors import JournalDamaged
from headwater.journal.format.checksum import bind_groups, extend_view, place_mask
from headwater.journal.format.names import JournalFile
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    SYNCED_GROUP_BYTES,
    Group,
    file_header,
    file_key,
    read_file_header,
    read_groups,
)
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import (
    FIRST,
    SECOND,
    SEED,
    THIRD,
    Written,
    bytes_of,
    copied,
    fact,
    facts_in,
    journal_names,
    open_journal,
    place,
    read_with,
    refused,
    turn_of,
    write_turn,
)

FILE_BYTES = 512

pytestmark = pytest.mark.usefixtures("pieces")


def groups_of(files: CrashableFiles, name: str) -> list[Group]:
    """Return all whole groups of a file, including the journal's own."""
    data = files.content(name).data
    key = file_key(int(name.removeprefix("journal-")))
    return list(read_groups(data, FILE_HEADER_BYTES, seed=SEED, key=key))


def alike(turns: int, *, policy: FsyncPolicy) -> Written:
    """Write a journal whose turns have the same length, so that one fits in place of another."""
    written = Written(0, policy=policy)
    for turn in range(1, turns + 1):
        write_turn(written.journal, f"turn {turn:03}", turn=turn)
        written.facts.append(fact(f"turn {turn:03}"))
        written.ends.append((written.journal._writer.name, written.journal._writer.end))
    return written


# --- the mask -----------------------------------------------------------------------------------


def test_no_two_places_of_a_file_share_a_mask() -> None:
    offsets = [*range(64, 100_000), *range(2**26 - 1000, 2**26), *range(2**31, 2**31 + 1000)]
    masks = {place_mask(file_key(7), offset) for offset in offsets}
    assert len(masks) == len(offsets)


def test_no_two_files_share_a_mask_at_an_offset() -> None:
    assert len({place_mask(file_key(number), 64) for number in range(1, 100_001)}) == 100_000


def test_the_masks_of_adjacent_places_differ_in_about_half_of_their_bits() -> None:
    changed = [
        (
            place_mask(file_key(number), offset) ^ place_mask(file_key(number), offset + 1)
        ).bit_count()
        for number in range(1, 50)
        for offset in range(64, 2064)
    ]
    assert 15.9 < sum(changed) / len(changed) < 16.1


def test_binding_masks_the_checksum_of_each_group_with_its_place() -> None:
    """The test computes it step by step, to show that the documentation suffices to read a file."""
    sealed = turn_of(Written(0).journal, [fact("one"), fact("the second")], turn=3)
    buffer = bytearray(b"before") + sealed
    bind_groups(buffer, 6, len(buffer), file_key(5), 1000)
    second = 24 + len(fact("one"))
    for start, offset in ((0, 1000), (second, 1000 + second)):
        stored = int.from_bytes(sealed[start + 4 : start + 8], "little")
        bound = int.from_bytes(buffer[6 + start + 4 : 6 + start + 8], "little")
        assert bound == stored ^ place_mask(place_mask(0, 5), offset)
        assert buffer[6 + start + 8 :][:16] == sealed[start + 8 :][:16]
    bind_groups(buffer, 6, len(buffer), file_key(5), 1000)
    assert buffer[6:] == sealed


@pytest.mark.parametrize("cut", [1, 24, 30])
def test_bytes_that_are_not_whole_groups_are_not_bound(cut: int) -> None:
    buffer = turn_of(Written(0).journal, [fact("some facts")], turn=3)[:-cut]
    with pytest.raises((AssertionError, IndexError, ValueError, SystemError)):
        bind_groups(buffer, 0, len(buffer), 1, 64)


# --- records at another place -------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["always", "no"])
def test_a_record_copied_over_the_next_is_never_applied(policy: FsyncPolicy) -> None:
    whole = alike(9, policy=policy)
    groups = groups_of(whole.files, FIRST)
    for first, second in itertools.pairwise(groups):
        if first.end - first.offset != second.end - second.offset:
            continue
        files = copied(whole.files)
        content = bytes(files.content(FIRST).data)
        files.corrupt(FIRST, second.offset, content[first.offset : first.end])
        check_cut_or_damage(files, whole, second.offset)


@pytest.mark.parametrize("policy", ["always", "no"])
def test_a_duplicated_record_is_never_applied_twice(policy: FsyncPolicy) -> None:
    """Everything after it is shifted by its length."""
    whole = Written(9, policy=policy)
    content = bytes(whole.files.content(FIRST).data)
    for group in groups_of(whole.files, FIRST):
        files = copied(whole.files)
        doubled = content[: group.end] + content[group.offset : group.end] + content[group.end :]
        files.corrupt(FIRST, 0, doubled)
        check_cut_or_damage(files, whole, group.end)


def test_records_after_inserted_bytes_still_vouch_for_their_places() -> None:
    """Under always, a lost acknowledged record is damage, not a tail, even if its proof was shifted."""
    whole = Written(9)
    name, end = whole.ends[3]
    content = bytes(whole.files.content(name).data)
    whole.files.corrupt(name, 0, content[:end] + b"\1" * 10 + content[end:])
    text = refused(whole.files)
    assert place(text) == (name, end)
    assert "although a later record says that everything before" in text


@pytest.mark.parametrize("policy", ["always", "no"])
def test_swapped_records_are_never_applied(policy: FsyncPolicy) -> None:
    whole = alike(9, policy=policy)
    groups = [group for group in groups_of(whole.files, FIRST) if group.facts[0] >= 0x10]
    for first, second in itertools.pairwise(groups):
        files = copied(whole.files)
        content = bytes(files.content(FIRST).data)
        files.corrupt(FIRST, first.offset, content[second.offset : second.end])
        files.corrupt(FIRST, second.offset, content[first.offset : first.end])
        check_cut_or_damage(files, whole, first.offset)


def test_a_record_of_another_file_is_never_applied() -> None:
    """It has the same offset and length and a plausible turn."""
    written = Written(0, policy="no", file_bytes=FILE_BYTES)
    turn = 0
    while written.journal._writer.name != THIRD:
        turn += 1
        write_turn(written.journal, f"turn {turn:03}", turn=turn)
        written.facts.append(fact(f"turn {turn:03}"))
    second, third = groups_of(written.files, SECOND), groups_of(written.files, THIRD)
    assert (second[1].offset, second[1].end) == (third[1].offset, third[1].end)
    content = bytes(written.files.content(THIRD).data)
    written.files.corrupt(SECOND, second[1].offset, content[third[1].offset : third[1].end])
    assert place(refused(written.files)) == (SECOND, second[1].offset)


def test_a_restored_older_copy_of_a_file_is_reported() -> None:
    """An older copy of the newest file is detected after a clean stop."""
    written = Written(4, file_bytes=FILE_BYTES)
    older = bytes_of(written.files)
    for turn in range(5, 30):
        write_turn(written.journal, f"turn {turn}", turn=turn)
    newest = written.journal._writer.name
    for name in (FIRST, SECOND):
        files = copied(written.files)
        files.corrupt(name, 0, older[name])
        assert name != newest
        assert place(refused(files))[0] == name


def check_cut_or_damage(files: CrashableFiles, whole: Written, at: int) -> None:
    """Check that the facts are a prefix with a reported cut at ``at``, or that ``at`` is reported as
    damage."""
    try:
        journal, facts = open_journal(files)
    except JournalDamaged as error:
        assert place(str(error)) == (FIRST, at), error  # noqa: PT017 - both outcomes are right
        return
    assert facts == whole.facts[: len(facts)]
    assert [(cut.file, cut.offset) for cut in journal.recovery.cuts] == [(FIRST, at)]


def test_reading_a_tail_takes_time_proportional_to_its_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This holds for any number of apparent beginnings of `synced` records in it."""
    hashed = 0

    def counted(crc: int, source: memoryview, start: int, end: int) -> int:
        nonlocal hashed
        hashed += end - start
        return extend_view(crc, source, start, end)

    bait = struct.pack("<I", 17) + bytes([0, 0, 0, 0, *([0xFF] * 16), 2])
    costs = []
    for count in (1000, 2000, 4000):
        written = Written(3, file_bytes=FILE_BYTES * 1024)
        written.files.corrupt(FIRST, written.ends[-1][1], bait * count)
        with monkeypatch.context() as patched:
            read_with(patched, counted)
            hashed = 0
            journal, facts = open_journal(written.files, file_bytes=FILE_BYTES * 1024)
        assert facts == written.facts
        assert journal.recovery.cuts[0].length >= len(bait) * count - 1
        costs.append(hashed)
    assert costs[0] > 1000 * 33
    assert costs[1] < 2.1 * costs[0]
    assert costs[2] < 2.1 * costs[1]


# --- format 1 -----------------------------------------------------------------------------------


def old_journal(facts: list[bytes], *, spare: bool = True) -> CrashableFiles:
    """Create a journal of format 1, as an earlier version would."""
    buffer = turn_of(Written(0).journal, facts, turn=1)
    files = CrashableFiles()
    files.create(FIRST, FILE_BYTES)
    files.corrupt(FIRST, 0, file_header(1, FILE_BYTES, SEED, version=1) + bytes(buffer))
    if spare:
        files.create(SECOND, FILE_BYTES)
        files.corrupt(SECOND, 0, file_header(2, FILE_BYTES, SEED, version=1))
    return files


def versions(files: CrashableFiles) -> list[int]:
    headers = [read_file_header(files.content(name).data) for name in journal_names(files)]
    return [header.version for header in headers if header is not None]


def test_a_file_of_format_1_is_continued_and_new_files_have_format_2() -> None:
    # Given a journal of format 1 with a spare
    facts = [fact("one"), fact("two")]
    files = old_journal(facts)
    # When it is opened, then the spare, which holds nothing, is created again
    journal, found = open_journal(files, file_bytes=FILE_BYTES)
    assert found == facts
    assert versions(files) == [1, 2]
    # And the first file continues in format 1, and later files have format 2
    for turn in range(2, 30):
        write_turn(journal, f"turn {turn}", turn=turn)
        facts.append(fact(f"turn {turn}"))
    assert versions(files) == [1] + [2] * (len(journal_names(files)) - 1)
    assert len(journal_names(files)) > 3
    assert facts_in(files)[0] == facts
    # Also when a turn spans both formats
    again = old_journal([fact("one")])
    journal, _ = open_journal(again, file_bytes=FILE_BYTES)
    many = [f"{number} " + "x" * 100 for number in range(5)]
    write_turn(journal, *many, turn=2)
    assert journal._writer.name == SECOND
    assert facts_in(again)[0] == [fact("one"), *map(fact, many)]


def test_a_spare_of_format_1_is_used_if_there_is_no_space_for_another() -> None:
    files = old_journal([fact("one")])
    files.capacity = files.used_bytes()
    journal, _ = open_journal(files, file_bytes=FILE_BYTES)
    assert versions(files) == [1, 1]
    for turn in range(2, 10):
        write_turn(journal, f"turn {turn}", turn=turn)
    assert journal._writer.name == SECOND
    journal.close()
    assert facts_in(files)[0] == [fact("one"), *(fact(f"turn {turn}") for turn in range(2, 10))]


def test_a_recreated_spare_that_may_not_be_durable_is_not_used() -> None:
    """After a crash its name may refer to the old or the new file."""
    files = old_journal([fact("one")])
    files.fail("sync_directory", passes=1)  # the first call belongs to the repair
    journal, _ = open_journal(files, file_bytes=FILE_BYTES)
    reason = journal.admits(FILE_BYTES)
    assert reason is not None
    assert "until a restart" in reason


def test_a_record_of_format_2_is_not_valid_in_format_1() -> None:
    written = Written(1)
    groups = groups_of(written.files, FIRST)
    data = written.files.content(FIRST).data
    assert len(groups) == 2
    assert list(read_groups(data, FILE_HEADER_BYTES, seed=SEED)) == []
    assert JournalFile(1, 0, 1).key is None
    assert groups[0].end - groups[0].offset == SYNCED_GROUP_BYTES
