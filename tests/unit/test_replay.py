"""Facts that no version of Headwater writes are refused with their kind and place."""

from __future__ import annotations

import pytest

from headwater.engine.keyspace import Keyspace
from headwater.engine.replay import apply
from tests.unit.test_facts import GOLDEN


@pytest.mark.parametrize("kind", [0x00, 0x0F, 0x1E, 0x46, 0xFF])
def test_an_unknown_kind_is_named(kind: int) -> None:
    with pytest.raises(ValueError, match=f"unknown kind of fact 0x{kind:02x} at byte 0"):
        apply(Keyspace(), memoryview(bytes((kind, 1, 2, 3))), 0)


def test_a_later_unknown_kind_is_named_with_its_place() -> None:
    first = bytes.fromhex(GOLDEN["string_set"])
    with pytest.raises(ValueError, match=f"0x99 at byte {len(first)} "):
        apply(Keyspace(), memoryview(first + b"\x99"), 0)


@pytest.mark.parametrize("name", list(GOLDEN))
def test_a_fact_that_ends_early_is_refused(name: str) -> None:
    # Given the state before one fact, and any prefix of that fact
    names = list(GOLDEN)
    before = b"".join(bytes.fromhex(GOLDEN[one]) for one in names[: names.index(name)])
    fact = bytes.fromhex(GOLDEN[name])
    for length in range(1, len(fact)):
        keyspace = Keyspace()
        apply(keyspace, memoryview(before), 0)
        # Then it is refused, and nothing is read beyond its end
        with pytest.raises(ValueError, match=r"ends before|ends within"):
            apply(keyspace, memoryview(fact[:length]), 0)
