"""Facts that no version of Headwater writes are refused with their kind and place, also within a batch."""

from __future__ import annotations

from array import array
from collections import deque

import pytest

from headwater.engine.facts.facts import FactBuffer
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from tests.unit.test_facts import GOLDEN


@pytest.mark.parametrize("kind", [0x00, 0x0F, 0x1E, 0x46, 0xFF])
def test_an_unknown_kind_is_named(kind: int) -> None:
    with pytest.raises(ValueError, match=f"unknown kind of fact 0x{kind:02x} at byte 0"):
        Replay(Keyspace()).apply(memoryview(bytes((kind, 1, 2, 3))), 0)


def test_a_later_unknown_kind_is_named_with_its_place() -> None:
    first = bytes.fromhex(GOLDEN["string_set"])
    with pytest.raises(ValueError, match=f"0x99 at byte {len(first)} "):
        Replay(Keyspace()).apply(memoryview(first + b"\x99"), 0)


@pytest.mark.parametrize("name", list(GOLDEN))
def test_a_fact_that_ends_early_is_refused(name: str) -> None:
    # Given the state before one fact, and any prefix of that fact
    names = list(GOLDEN)
    before = b"".join(bytes.fromhex(GOLDEN[one]) for one in names[: names.index(name)])
    fact = bytes.fromhex(GOLDEN[name])
    for length in range(1, len(fact)):
        keyspace = Keyspace()
        Replay(keyspace).apply(memoryview(before), 0)
        # Then it is refused, and nothing is read beyond its end
        with pytest.raises(ValueError, match=r"ends before|ends within"):
            Replay(keyspace).apply(memoryview(fact[:length]), 0)


def test_a_batch_stops_at_the_group_that_cannot_be_applied() -> None:
    # Given a read-only batch of four groups, of which the third is damaged, between other bytes
    written = []
    for at in range(4):
        buffer = FactBuffer()
        buffer.list_pushed(0, b"k", False, [b"%d" % at])
        written.append(bytes(buffer.data) if at != 2 else bytes(buffer.data)[:-1])
    data, starts, ends = b"..", array("Q"), array("Q")
    for facts in written:
        starts.append(len(data))
        data += facts
        ends.append(len(data))
        data += b"...."
    times = array("Q", (1, 2, 3, 4))
    # When it is applied from its second group on
    keyspace = Keyspace()
    replay = Replay(keyspace)
    with pytest.raises(ValueError, match="ends within"):
        replay.apply_batch(memoryview(data), starts, ends, times, 1)
    # Then the groups before the damaged one were applied, and its number is known
    assert replay.done == 2
    assert keyspace.databases[0].values == {b"k": deque([b"1"])}
    # And the batch can be continued
    replay.apply_batch(memoryview(data), starts, ends, times, 3)
    assert replay.done == 4
    assert keyspace.databases[0].values == {b"k": deque([b"1", b"3"])}
