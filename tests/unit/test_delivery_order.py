"""The delivery order against a list that is kept sorted by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.engine import pending
from headwater.engine.delivery_order import DeliveryOrder
from headwater.engine.pending import NOBODY, NOWHERE, PendingList

ID = tuple[int, int]

ids = st.tuples(st.integers(0, 10), st.integers(0, 2))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("own"), ids, st.integers(0, 6)),
        st.tuples(st.just("release"), ids, st.just(0)),
        st.tuples(st.just("settle"), ids, st.just(0)),
    ),
    max_size=80,
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "PENDING_BLOCK_RECORDS", 8)


class Naive:
    """A list of (time, id); who comes later stands behind those of the same time."""

    def __init__(self) -> None:
        self.pel = PendingList()
        self.order = DeliveryOrder(self.pel)
        self.expected: list[tuple[int, ID]] = []

    def do(self, what: str, entry_id: ID, time: int) -> None:
        at = self.pel.find(*entry_id)
        self.expected = [item for item in self.expected if item[1] != entry_id]
        if what == "settle":
            if at != NOWHERE:
                self.pel.remove(at)
            return
        owner = 1 if what == "own" else NOBODY
        if at == NOWHERE:
            self.pel.insert(*entry_id, owner=owner, time=time, count=1)
        else:
            self.pel.change(at, owner=owner, time=time, count=1)
        if what == "own":
            self.order.add(time, *entry_id)
            place = sum(item[0] <= time for item in self.expected)
            self.expected.insert(place, (time, entry_id))

    def walked(self) -> list[tuple[int, ID]]:
        return [(self.pel.time(at), self.pel.id(at)) for at in self.order.walk()]


@given(steps)
@settings(max_examples=500, deadline=None)
def test_the_walk_is_by_time_and_then_by_arrival(steps: list[tuple[str, ID, int]]) -> None:
    naive = Naive()
    for step in steps:
        naive.do(*step)
        assert naive.walked() == naive.expected
        assert naive.order.oldest() == (naive.expected[0][0] if naive.expected else None)


@given(steps)
@settings(max_examples=200, deadline=None)
def test_no_id_is_covered_twice_by_runs_of_one_time(steps: list[tuple[str, ID, int]]) -> None:
    naive = Naive()
    for step in steps:
        naive.do(*step)
    covered: dict[int, list[tuple[ID, ID]]] = {}
    for time, first, last in naive.order.runs():
        assert first <= last
        covered.setdefault(time, []).append((first, last))
    for runs in covered.values():
        runs.sort()
        assert all(a[1] < b[0] for a, b in pairwise(runs))


def test_a_thousand_neighbours_of_one_time_are_one_run() -> None:
    naive = Naive()
    for seq in range(1000):
        naive.pel.insert(5, seq, owner=1, time=7, count=1)
        naive.order.add(7, 5, seq)
    assert len(naive.order) == 1


def test_runs_without_a_record_do_not_pile_up() -> None:
    # Given one record that is owned anew ten thousand times
    naive = Naive()
    for time in range(10_000):
        naive.do("own", (1, 1), time)
    # Then the order stays small
    assert len(naive.order) <= 2 * len(naive.pel) + 64


def test_an_emptied_order_is_ready_for_new_runs() -> None:
    naive = Naive()
    naive.do("own", (5, 5), 9)
    naive.do("settle", (5, 5), 0)
    naive.order.clear()
    naive.do("own", (1, 1), 3)
    assert naive.walked() == [(3, (1, 1))]
