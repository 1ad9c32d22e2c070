"""SCAN's guarantee: a scan returns every key that exists during the whole scan."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.keyspace.key_order import KeyOrder

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
def test_a_scan_returns_every_key_that_exists_all_the_time(
    before: list[tuple[bool, bytes]], between: list[list[tuple[bool, bytes]]], count: int
) -> None:
    # Given some keys
    store = Keys()
    for change in before:
        store.change(*change)
    stays = set(store.present)
    # When a scan runs while keys are added and removed
    seen: set[bytes] = set()
    cursor, found = store.order.scan(0, count)
    pauses = iter(between)
    while True:
        assert len(found) <= count
        assert store.present.keys() >= set(found)
        seen.update(found)
        if cursor == 0:
            break
        for change in next(pauses, []):
            store.change(*change)
        stays &= store.present.keys()
        cursor, found = store.order.scan(cursor, count)
    # Then it has returned every key that existed from its start to its end
    assert seen >= stays


@given(st.lists(st.tuples(st.booleans(), keys)))
def test_a_scan_without_changes_returns_each_key_once(history: list[tuple[bool, bytes]]) -> None:
    store = Keys()
    for change in history:
        store.change(*change)
    cursor, found = store.order.scan(0, 10_000)
    assert cursor == 0
    assert sorted(found) == sorted(store.present)


def test_a_key_that_is_added_and_removed_repeatedly_takes_no_space() -> None:
    store = Keys()
    for _ in range(10_000):
        store.change(True, b"lock")
        store.change(False, b"lock")
    assert len(store.order.names) <= 70
