"""Damage is refused with its place, and nothing is changed. Harmless changes are not damage."""

from __future__ import annotations

import pytest

from headwater.errors import JournalDamaged, StoreUnusable
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    SYNCED_GROUP_BYTES,
    Synced,
    begin_group,
    file_header,
    seal_group,
    synced_group,
)
from headwater.testing.files import CrashableFiles
from tests.crash.journal_tools import (
    FIRST,
    SECOND,
    SEED,
    THIRD,
    Written,
    bound,
    bytes_of,
    open_journal,
    place,
    refused,
    write_turn,
)

FILE_BYTES = 512

pytestmark = pytest.mark.usefixtures("pieces")


# --- damage -------------------------------------------------------------------------------------


def test_a_bad_record_is_damage_when_a_later_one_vouches_for_its_place() -> None:
    written = Written(4)
    _name, end = written.ends[1]
    written.files.corrupt(FIRST, end + SYNCED_GROUP_BYTES + 25, b"\xff")
    text = refused(written.files)
    assert place(text) == (FIRST, end + SYNCED_GROUP_BYTES)
    assert "checksum" in text
    assert f"everything before {written.ends[2][1]} was durable" in text


def test_a_bad_record_is_a_tail_when_nothing_vouches_for_its_place() -> None:
    """The last `synced` fact vouches for the record before it, not for this one."""
    written = Written(4)
    _name, end = written.ends[2]
    written.files.corrupt(FIRST, end + SYNCED_GROUP_BYTES + 25, b"\xff")
    journal, facts = written.open()
    assert facts == written.facts[:3]
    assert len(journal.recovery.cuts) == 1


def test_zeros_between_durable_records_are_damage() -> None:
    written = Written(4)
    written.files.corrupt(FIRST, written.ends[0][1], bytes(80))
    assert place(refused(written.files)) == (FIRST, written.ends[0][1])


def test_a_bad_record_is_damage_when_a_later_file_holds_records() -> None:
    # Given turns under policy no, so that only the next file vouches for this one
    written = Written(15, policy="no", file_bytes=FILE_BYTES)
    first = [end for name, end in written.ends if name == FIRST]
    written.files.corrupt(FIRST, first[2] + 25, b"\xff")
    text = refused(written.files)
    assert place(text) == (FIRST, first[2])
    assert f"{SECOND} says that records were durable up to offset {first[-1]} of {FIRST}" in text


def test_a_file_whose_end_was_zeroed_is_damaged() -> None:
    written = Written(15, policy="no", file_bytes=FILE_BYTES)
    first = [end for name, end in written.ends if name == FIRST]
    written.files.corrupt(FIRST, first[-2], bytes(FILE_BYTES - first[-2]))
    assert place(refused(written.files)) == (FIRST, first[-2])


def test_a_later_file_vouches_even_if_its_own_first_record_is_bad() -> None:
    # Given two damaged places: the end of the first file and the start of the second
    written = Written(15, file_bytes=FILE_BYTES)
    first = [end for name, end in written.ends if name == FIRST]
    written.files.corrupt(SECOND, 64, b"\xff\xff")
    assert place(refused(written.files)) == (SECOND, 64)
    written.files.corrupt(FIRST, first[-2] + 50, b"\xff")
    text = refused(written.files)
    assert place(text) == (FIRST, first[-2] + SYNCED_GROUP_BYTES)
    assert f"although {SECOND} holds later records" in text


def test_a_bad_first_record_is_damage_when_only_a_much_later_file_says_so() -> None:
    written = Written(30, policy="no", file_bytes=FILE_BYTES)
    body = FILE_BYTES - 64
    written.files.corrupt(SECOND, 64, bytes(body))
    assert place(refused(written.files)) == (SECOND, 64)
    written.files.corrupt(THIRD, 64, b"\xff" * 10)
    assert place(refused(written.files)) == (SECOND, 64)


def test_bytes_after_the_end_of_an_earlier_file_are_ignored() -> None:
    """The next file says where the earlier one ended, so the journal did not write them."""
    written = Written(15, file_bytes=FILE_BYTES)
    first = max(end for name, end in written.ends if name == FIRST)
    written.files.corrupt(FIRST, first, b"stray")
    journal, facts = written.open()
    assert facts == written.facts
    assert journal.recovery.notes == [
        (
            f"memory:/{FIRST}: 5 bytes after its last record at {first} were ignored; the next file "
            "says that it ended there"
        )
    ]


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False])
def test_every_flipped_bit_is_reported_or_harmless(clean: bool) -> None:
    """The facts are never different, and after a clean stop never fewer."""
    whole = Written(9, file_bytes=FILE_BYTES, clean=clean)
    outcomes = {"damaged": 0, "cut": 0, "harmless": 0}
    for name in whole.names():
        content = bytes_of(whole.files)[name]
        for offset in range(len(content)):
            bit = 1 << (offset * 5 + len(name)) % 8
            files = CrashableFiles()
            for other, data in bytes_of(whole.files).items():
                files.create(other, len(data))
                files.corrupt(other, 0, data)
            files.corrupt(name, offset, bytes([content[offset] ^ bit]))
            try:
                journal, facts = open_journal(files, file_bytes=FILE_BYTES)
            except JournalDamaged as error:
                found, damaged = place(str(error))
                assert found == name
                assert damaged <= offset
                outcomes["damaged"] += 1
                continue
            assert facts == whole.facts[: len(facts)]
            if facts != whole.facts:
                # Only the last turn is missing. Only a clean stop vouches for it
                assert not clean
                assert facts == whole.facts[:-1]
                assert journal.recovery.cuts
            cut = bool(journal.recovery.cuts or journal.recovery.notes)
            outcomes["cut" if cut else "harmless"] += 1
    # Every byte of the files has a meaning, if only that it is unused
    assert outcomes["damaged"] > 500
    assert outcomes["cut"] > 500
    assert outcomes["harmless"] == 0


def test_forged_records_in_a_payload_vouch_for_nothing() -> None:
    """A client that stores bytes like the journal's records must not prevent a start."""
    # Given a torn turn, and after it a turn with a forged record that says the whole file was durable
    forged = bytes(synced_group(Synced(1, 4000), 2**63, 1, 0))
    written = Written(2)
    torn = written.ends[-1][1]
    write_turn(written.journal, "torn", turn=3)
    write_turn(written.journal, forged, turn=4)
    written.files.corrupt(FIRST, torn + 20, b"\xff\xff")
    # Then the start is refused because of the true record that vouches for it, not the forged one
    assert "before 4000" not in refused(written.files)
    # And without the true one the tail is cut
    written.files.corrupt(FIRST, written.journal._writer.end - len(forged) - 60, b"\xff" * 30)
    _journal, facts = written.open()
    assert facts == written.facts


def test_a_copy_of_journal_records_in_a_payload_vouches_for_nothing() -> None:
    """A copy of the journal stored in the store: its records vouch for other places."""
    written = Written(3)
    copy = bytes(written.files.content(FIRST).data)[: written.ends[-1][1]]
    torn = written.journal._writer.end
    write_turn(written.journal, copy, turn=4)
    written.files.corrupt(FIRST, torn + SYNCED_GROUP_BYTES + 8, b"\xff\xff")
    _journal, facts = written.open()
    assert facts == written.facts


# --- files --------------------------------------------------------------------------------------


def test_an_empty_directory_is_an_empty_journal() -> None:
    journal, facts = open_journal(CrashableFiles(), file_bytes=FILE_BYTES)
    assert facts == []
    assert (journal.recovery.groups, journal.recovery.last_turn) == (0, 0)


def test_a_journal_without_a_turn_is_empty() -> None:
    written = Written(0)
    _journal, facts = written.open()
    assert facts == []


@pytest.mark.parametrize("missing", [FIRST, SECOND, THIRD])
def test_a_missing_file_is_named(missing: str) -> None:
    written = Written(30, file_bytes=FILE_BYTES)
    written.files.remove(missing)
    text = refused(written.files)
    assert text.startswith(f"memory:/{missing} is missing, although memory:/journal-0")


def test_files_of_other_names_are_left_alone() -> None:
    written = Written(3)
    others = ("journal-2", "journal-000002.bak", "headwater.conf", "xjournal-000001.new")
    for other in others:
        written.files.create(other, 5)
        written.files.corrupt(other, 0, b"hello")
    _journal, facts = written.open()
    assert facts == written.facts
    assert all(bytes(written.files.content(other).data) == b"hello" for other in others)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "no header of a journal file"),
        (bytes(FILE_HEADER_BYTES - 1), "no header of a journal file"),
        (bytes(FILE_HEADER_BYTES) + b"\x01" + bytes(4000), "no header of a journal file"),
        (b"PAR1 something else entirely", "no header of a journal file"),
        (file_header(7, 4096, SEED), "the header of journal-000007"),
        (file_header(2, 4096, SEED + 1), "the header of a file of another store"),
    ],
)
def test_a_file_that_is_not_a_journal_file_is_named(content: bytes, found: str) -> None:
    written = Written(3)
    written.files.cut(SECOND, 0)
    written.files.corrupt(SECOND, 0, content)
    text = refused(written.files)
    assert place(text) == (SECOND, 0)
    assert found in text


def test_a_file_number_in_another_spelling_is_not_a_journal_file() -> None:
    written = Written(3)
    written.files.rename(SECOND, "journal-0000002")
    assert refused(written.files).startswith(f"memory:/{SECOND} is missing")


@pytest.mark.parametrize("version", [0, 3, 65535])
def test_an_unknown_format_requires_a_later_version(version: int) -> None:
    written = Written(0)
    written.files.corrupt(FIRST, 0, file_header(1, 4096, SEED, version=version))
    with pytest.raises(StoreUnusable, match=rf"journal-000001 has format {version};.*or later"):
        written.open()


def own_group(facts: bytes) -> bytearray:
    buffer = bytearray()
    mark = begin_group(buffer)
    buffer += facts
    seal_group(buffer, mark, 9, 9, SEED)
    return buffer


@pytest.mark.parametrize(
    ("group", "found"),
    [
        (own_group(b"\x05 what is this"), "a fact of unknown kind 0x05"),
        (
            synced_group(Synced(1, 4000), 9, 9, SEED),
            "a record that declares a later offset, 4000, durable",
        ),
    ],
)
def test_a_fact_that_the_journal_never_writes_is_damage(group: bytearray, found: str) -> None:
    written = Written(3)
    end = written.ends[-1][1]
    written.files.corrupt(FIRST, end, bound(group, 1, end))
    text = refused(written.files)
    assert place(text) == (FIRST, end)
    assert found in text


def test_the_end_of_a_file_according_to_the_next_file_takes_precedence() -> None:
    written = Written(3)
    written.files.corrupt(SECOND, 64, bound(synced_group(Synced(1, 64), 9, 9, SEED), 2, 64))
    text = refused(written.files)
    assert place(text) == (FIRST, written.ends[-1][1])
    assert f"{SECOND} says that records were durable up to offset 64 of {FIRST}" in text


def test_a_later_file_that_names_no_end_is_damaged() -> None:
    written = Written(3)
    written.files.corrupt(SECOND, 64, bound(own_group(b"\x20no such thing was said"), 2, 64))
    text = refused(written.files)
    assert place(text) == (SECOND, 64)
    assert "does not say where the previous file ended" in text


def test_records_in_the_next_file_without_its_first_are_a_tail_when_nothing_vouches() -> None:
    """Under everysec: the first part of a write is lost and the second is not. The previous file is
    complete."""
    written = Written(15, policy="no", file_bytes=FILE_BYTES)
    first = [fact for fact, end in zip(written.facts, written.ends, strict=True) if end[0] == FIRST]
    assert written.ends[-1][0] == SECOND
    written.files.corrupt(SECOND, 64, bytes(60))
    journal, facts = written.open()
    assert facts == first
    assert [(cut.file, cut.offset) for cut in journal.recovery.cuts] == [(SECOND, 64)]
