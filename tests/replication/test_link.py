"""What arrives over the link is untrusted: it is applied as it was sent, or refused."""

from __future__ import annotations

from random import Random

import pytest

from headwater.common.limits import MAX_RECORD_GROUP_BYTES
from headwater.journal.format.manifest import Left, StoreHistory
from headwater.journal.format.records import begin_group, seal_group
from headwater.server.services.replication.link import (
    Continuation,
    CopyEnds,
    FileBegins,
    FilePart,
    Groups,
    LinkReader,
    LinkRefused,
    Received,
    SignOfLife,
    copy_ends,
    file_begins,
    file_part,
    sign_of_life,
)
from tests.crash.journal_tools import fact

SEED = 7


def group(facts: bytes, turn: int = 1) -> bytes:
    buffer = bytearray()
    mark = begin_group(buffer)
    buffer += facts
    seal_group(buffer, mark, turn, 1_000, SEED)
    return bytes(buffer)


def shown(received: Received) -> object:
    """Return what was received in a form that can be compared and kept."""
    if isinstance(received, Groups):
        rows = zip(received.starts, received.ends, received.times, strict=True)
        return [(bytes(received.data[start:end]), now_ms) for start, end, now_ms in rows]
    return received


def everything() -> bytes:
    """Return one group of each kind."""
    return b"".join([
        file_begins("journal-000001", 5, SEED), file_part(b"bytes", SEED),
        copy_ends(b"format 2\n", SEED), group(fact("one")), group(fact("two"), turn=2),
        sign_of_life(8, wanted=True, turn=3, now_ms=5, seed=SEED), group(fact("three"), turn=4),
    ])  # fmt: skip


ALL = [
    FileBegins("journal-000001", 5),
    FilePart(b"bytes"),
    CopyEnds(b"format 2\n"),
    [(fact("one"), 1_000), (fact("two"), 1_000)],
    SignOfLife(8, 5, True),
    [(fact("three"), 1_000)],
]


def read(pieces: list[bytes]) -> list[object]:
    reader, found = LinkReader(SEED), []
    for piece in pieces:
        reader.feed(piece)
        found += [shown(one) for one in reader.read()]
    return found


def test_whole_groups_are_read_in_order() -> None:
    assert read([everything()]) == ALL


def test_groups_arrive_in_pieces_of_any_size() -> None:
    # Given the bytes of a link, one at a time
    data = everything()
    found = read([data[at : at + 1] for at in range(len(data))])
    # Then the same is read, each group as soon as it is complete
    assert found == [*ALL[:3], ALL[3][:1], ALL[3][1:], *ALL[4:]]


def test_a_reader_that_was_left_goes_on_where_it_was() -> None:
    # Given a reader of which only the first group was taken
    reader = LinkReader(SEED)
    reader.feed(everything())
    first = shown(next(reader.read()))
    # When it is read again, then the others follow
    assert [first, *map(shown, reader.read())] == ALL


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ((MAX_RECORD_GROUP_BYTES + 1).to_bytes(4, "little") + bytes(40), "more than the limit"),
        (bytes(40), "length 0"),
        (group(b"\x01nothing"), "kind 0x01"),
        (group(b"\x0d" + b"x"), None),
        (group(b"\x0b" + bytes(8)), "kind 0x0b"),
        (group(b"\x29stored"), "where it stores bodies"),
        (group(fact("later"), turn=9) + group(fact("earlier"), turn=8), "turn 8 after"),
    ],
)
def test_other_groups_are_refused(data: bytes, reason: str | None) -> None:
    if reason is None:
        assert read([data]) == [CopyEnds(b"x")]
        return
    with pytest.raises(LinkRefused, match=reason):
        read([data])


def mutated(data: bytes, random: Random) -> bytes:
    """Return the bytes with some changed, inserted, removed, repeated or moved."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        at, length = random.randrange(len(changed)), random.randrange(1, 30)
        kind = random.randrange(5)
        if kind == 0:
            changed[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            changed[at:at] = random.randbytes(length)
        elif kind == 2:
            del changed[at : at + length]
        elif kind == 3:
            changed[at:at] = changed[at : at + length]
        else:
            changed[at : at + length] = changed[at : at + length][::-1]
        if not changed:
            return b"\0"
    return bytes(changed)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_bytes_are_refused_or_read_as_they_were_sent(seed: int) -> None:
    # Given changed bytes of a link
    random, data = Random(seed), everything()
    flat = [one for item in ALL for one in (item if isinstance(item, list) else [item])]
    for _ in range(500):
        found: list[object] = []
        reader = LinkReader(SEED)
        reader.feed(mutated(data, random))
        # When they are read
        try:
            for received in reader.read():
                item = shown(received)
                found += item if isinstance(item, list) else [item]
        except LinkRefused:
            pass
        # Then nothing is read that was not sent
        assert all(one in flat for one in found)


def test_the_reply_to_hwsync_is_read_as_it_was_written() -> None:
    history = StoreHistory("a" * 40, (Left("b" * 40, 5), Left("c" * 40, 9)))
    for full in (False, True):
        reply = Continuation(full, 7, history, 12)
        assert Continuation.read(reply.line()) == reply


@pytest.mark.parametrize(
    "line", [b"+OK\r\n", b"+FULL\r\n", b"+CONTINUE x y 1\r\n", b"\xff\r\n", b""]
)
def test_another_reply_to_hwsync_is_refused(line: bytes) -> None:
    with pytest.raises(LinkRefused, match="answered HWSYNC"):
        Continuation.read(line)
