"""What arrives over the link is untrusted: it is applied as it was sent, or refused."""

from __future__ import annotations

from random import Random

import pytest

from headwater.common.limits import MAX_RECORD_GROUP_BYTES
from headwater.journal.format.manifest import Left, StoreHistory
from headwater.server.services.replication.link import (
    Continuation,
    CopyEnds,
    LinkReader,
    LinkRefused,
)
from tests.crash.journal_tools import fact
from tests.replication.fuzzing import ALL, SEED, everything, group, shown, wrongly_read


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


@pytest.mark.parametrize("seed", range(4))
def test_mutated_bytes_are_refused_or_read_as_they_were_sent(seed: int) -> None:
    # Given changed bytes of a link
    # When they are read, then they are refused, or nothing is read that was not sent
    assert wrongly_read(Random(seed), 500) == []


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
