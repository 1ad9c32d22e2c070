"""Which deaths count against a message: the rule as a table."""

from __future__ import annotations

import pytest

from headwater.groups.reading.poison import NO_RECORD, Record, alone, judge, outlived

RULE = [
    # the record, the count with the claim, whether the owner was silent, the new record
    (Record(), 2, True, Record(excused=1)),
    (Record(excused=1), 3, True, Record(excused=2)),
    (Record(excused=2), 9, True, Record(excused=3)),
    # a retry, or a hand-back: its owner was alive
    (Record(), 2, False, Record()),
    (Record(excused=2), 4, False, Record(excused=2)),
    # it ran alone, and its process died
    (Record(excused=2, alone_at=3), 4, True, Record(excused=2, crashes=1)),
    (Record(excused=2, alone_at=4, crashes=1), 5, True, Record(excused=2, crashes=2)),
    # it ran alone and failed, and its next process died with others
    (Record(excused=2, alone_at=3), 5, True, Record(excused=3, alone_at=3)),
    # it ran alone, was handed back with its count, and its next process died with others
    (Record(excused=2, alone_at=3), 3, False, Record(excused=2)),
]


@pytest.mark.parametrize(("record", "count", "silent", "expected"), RULE)
def test_only_a_death_alone_counts_against_a_message(
    record: Record, count: int, silent: bool, expected: Record
) -> None:
    assert judge(record, count=count, from_silent=silent) == expected


@pytest.mark.parametrize(
    ("record", "suspect", "condemned"),
    [
        (Record(), False, False),
        (Record(excused=1), False, False),
        (Record(excused=2), True, False),
        (Record(excused=1, crashes=1), True, False),
        (Record(excused=2, crashes=2), True, True),
    ],
)
def test_two_excused_deaths_make_a_message_suspected_and_two_alone_a_dead_letter(
    record: Record, suspect: bool, condemned: bool
) -> None:
    assert (record.suspect, record.condemned()) == (suspect, condemned)


def test_a_death_after_the_quarantine_counts_as_an_attempt() -> None:
    # Given a suspected message at its third delivery, of which two were excused
    running = alone(Record(excused=2), count=3)

    # When other messages start while it runs, and its process dies
    after = judge(outlived(running), count=4, from_silent=True)

    # Then this counts as an attempt and not as a crash
    assert after == Record(excused=2)
    assert 4 - after.excused == 2


@pytest.mark.parametrize("record", [NO_RECORD, Record(excused=2, alone_at=7, crashes=1, left=1)])
def test_a_record_is_read_back_from_its_hash_field(record: Record) -> None:
    assert Record.parse(record.encode().encode()) == record


@pytest.mark.parametrize("value", [None, b"", b"1 2", b"a b c d", b"1 2 3 4 5 6 7"])
def test_a_field_of_another_format_is_ignored(value: bytes | None) -> None:
    assert Record.parse(value) == NO_RECORD
