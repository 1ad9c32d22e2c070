"""A flipped bit in the newest record is damage; a torn newest record is a tail."""

from __future__ import annotations

from random import Random

from headwater.errors import JournalDamaged
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    begin_group,
    file_key,
    read_groups,
    seal_group,
)
from headwater.journal.log.flipped import FLIPPED_RECORD_BYTES, flipped_bit
from tests.crash.journal_tools import FIRST, SEED, Written, bound, copied, open_journal

KEY = file_key(1)
OFFSET = FILE_HEADER_BYTES


def record(facts: bytes) -> bytes:
    """Return a record at `OFFSET` of the first file."""
    buffer = bytearray()
    mark = begin_group(buffer)
    buffer += facts
    seal_group(buffer, mark, 7, 1526569498055, SEED)
    return bound(buffer, 1, OFFSET)


def in_a_file(content: bytes) -> memoryview:
    """Return a file with zeros after this content, which begins at `OFFSET`."""
    return memoryview(bytes(OFFSET) + content + bytes(8192))


def found(content: bytes, *, turn: int = 7) -> tuple[int, int] | None:
    data = in_a_file(content)
    assert next(read_groups(data, OFFSET, seed=SEED, turn=turn, key=KEY), None) is None
    return flipped_bit(data, OFFSET, seed=SEED, turn=turn, key=KEY)


def flip(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_flipped_bit_is_found() -> None:
    """Facts, header, checksum and length: whichever bit it is."""
    whole = record(b"\x21 facts of some length\xff")
    for bit in range(8 * len(whole)):
        assert found(flip(whole, bit)) == (OFFSET + bit // 8, bit % 8), bit


def test_a_flipped_bit_of_the_largest_record_is_found() -> None:
    facts = b"\x21" + Random(1).randbytes(FLIPPED_RECORD_BYTES - GROUP_HEADER_BYTES - 1)
    whole = record(facts)
    for bit in (0, 40, 64, 300, 20_000, 8 * len(whole) - 1):
        assert found(flip(whole, bit)) == (OFFSET + bit // 8, bit % 8)


def test_a_larger_record_is_not_judged() -> None:
    whole = record(b"\x21" + bytes(FLIPPED_RECORD_BYTES - GROUP_HEADER_BYTES))
    assert found(flip(whole, 300)) is None


def test_two_flipped_bits_are_not_one() -> None:
    whole, random = record(b"\x21 facts of some length"), Random(1)
    for _ in range(200):
        first, second = random.sample(range(8 * len(whole)), 2)
        assert found(flip(flip(whole, first), second)) is None


def test_a_record_of_an_earlier_turn_is_not_a_flipped_one() -> None:
    whole = record(b"\x21 facts")
    assert found(flip(whole, 8 * 30), turn=8) is None
    # And a flip in the turn is judged by the right turn
    assert found(flip(whole, 8 * 8), turn=7) == (OFFSET + 8, 0)


def test_no_torn_record_is_taken_for_a_flipped_one() -> None:
    """Also where the lost bytes have only one bit: a tear at any byte, from the start or to the end."""
    random = Random(2)
    for _ in range(300):
        facts = b"\x21" + bytes(
            random.choice((0, 1, 64, 128, 255)) for _ in range(random.randrange(30))
        )
        whole = record(facts)
        for at in range(1, len(whole)):
            for torn in (whole[:at] + bytes(len(whole) - at), bytes(at) + whole[at:]):
                if torn != whole:
                    assert found(torn) is None


def test_a_lost_sector_with_one_bit_is_a_tear() -> None:
    facts = bytearray(b"\x21" + b"x" * 2000)
    facts[900:1600] = bytes(700)
    sector = 1024 - OFFSET - GROUP_HEADER_BYTES
    facts[sector + 100] = 1
    whole = record(bytes(facts))
    assert found(flip(whole, 8 * (GROUP_HEADER_BYTES + sector + 100))) is None


def test_a_store_with_a_flipped_bit_in_its_newest_record_is_refused() -> None:
    # Given a journal without a clean stop, so nothing vouches for its newest record
    written = Written(3)
    end = written.ends[-1][1]
    content = bytes(written.files.content(FIRST).data)
    start = end - len(written.facts[-1]) - GROUP_HEADER_BYTES
    refusals = 0
    # When any bit of that record is flipped
    for bit in range(8 * start, 8 * end):
        files = copied(written.files)
        files.corrupt(FIRST, bit // 8, bytes([content[bit // 8] ^ 1 << bit % 8]))
        try:
            open_journal(files)
        except JournalDamaged as error:
            assert f"bit {bit % 8} of the byte at {bit // 8}" in str(error)  # noqa: PT017
            refusals += 1
    # Then the start is refused, except for at most one bit that a torn write may have lost at an edge
    assert refusals >= 8 * (end - start) - 2
