"""SCAN's promise: what is there during a whole scan is seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.key_order import KeyOrder

keys = st.binary(max_size=2)
changes = st.lists(st.tuples(st.booleans(), keys), max_size=10)


class Keys:
    def __init__(self) -> None:
        self.present: dict[bytes, int] = {}
        self.order = KeyOrder(self.present)

    def change(self, there: bool, key: bytes) -> None:
        if there and key not in self.present:
            self.present[key] = 1
            self.order.add(key, len(self.present))
        elif not there:
            self.present.pop(key, None)


@given(st.lists(st.tuples(st.booleans(), keys)), st.lists(changes), st.integers(1, 5))
def test_a_key_that_is_there_all_the_time_is_seen(
    before: list[tuple[bool, bytes]], between: list[list[tuple[bool, bytes]]], count: int
) -> None:
    # Given some keys
    held = Keys()
    for change in before:
        held.change(*change)
    stays = set(held.present)
    # When a scan goes on while keys come and go
    seen: set[bytes] = set()
    cursor, found = held.order.scan(0, count)
    pauses = iter(between)
    while True:
        assert len(found) <= count
        assert held.present.keys() >= set(found)
        seen.update(found)
        if cursor == 0:
            break
        for change in next(pauses, []):
            held.change(*change)
        stays &= held.present.keys()
        cursor, found = held.order.scan(cursor, count)
    # Then it has seen all that was there from its start to its end
    assert seen >= stays


@given(st.lists(st.tuples(st.booleans(), keys)))
def test_a_scan_of_what_stands_still_names_each_key(history: list[tuple[bool, bytes]]) -> None:
    held = Keys()
    for change in history:
        held.change(*change)
    cursor, found = held.order.scan(0, 10_000)
    assert cursor == 0
    assert sorted(found) == sorted(held.present)


def test_a_lock_that_comes_and_goes_takes_no_place() -> None:
    held = Keys()
    for _ in range(10_000):
        held.change(True, b"lock")
        held.change(False, b"lock")
    assert len(held.order.names) <= 70
