"""The delivery order compared with a sorted list."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.engine.groups import pending
from headwater.engine.groups.delivery_order import DeliveryOrder
from headwater.engine.groups.pending import NOBODY, NOWHERE, PendingList

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
    """A sorted list of (time, id). A new item goes after those of the same time."""

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
            at = self.pel.insert(*entry_id, owner=owner, time=time, count=1)
        else:
            self.pel.change(at, owner=owner, time=time, count=1)
        if what == "own":
            self.order.add(at, 1, time)
            place = sum(item[0] <= time for item in self.expected)
            self.expected.insert(place, (time, entry_id))

    def walked(self) -> list[tuple[int, ID]]:
        return [(self.pel.time(at), self.pel.id(at)) for at in self.order.walk()]


@pytest.mark.slow
@given(steps)
@settings(max_examples=500)
def test_a_walk_is_ordered_by_time_and_then_by_arrival(steps: list[tuple[str, ID, int]]) -> None:
    naive = Naive()
    for step in steps:
        naive.do(*step)
        assert naive.walked() == naive.expected


@given(steps)
@settings(max_examples=200)
def test_runs_of_one_time_do_not_overlap(steps: list[tuple[str, ID, int]]) -> None:
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


def test_adjacent_entries_of_one_time_are_one_run() -> None:
    naive = Naive()
    for seq in range(1000):
        at = naive.pel.insert(5, seq, owner=1, time=7, count=1)
        naive.order.add(at, 1, 7)
    assert len(naive.order) == 1
    assert naive.order.covered == 1000


def test_runs_without_a_record_do_not_accumulate() -> None:
    # Given one record that changes its time ten thousand times
    naive = Naive()
    for time in range(10_000):
        naive.do("own", (1, 1), time)
    # Then the order stays small
    assert len(naive.order) <= 4 * len(naive.pel) + 64


def test_a_run_covers_only_the_records_that_were_added_to_it() -> None:
    # Given alternating entries of two consumers, all of one time
    naive = Naive()
    for seq in range(100):
        at = naive.pel.insert(1, seq, owner=1 + seq % 2, time=1, count=1)
        naive.order.add(at, 1, 1)
    # When one consumer renews its entries
    for seq in range(0, 100, 2):
        at = naive.pel.find(1, seq)
        naive.pel.change(at, owner=1, time=2, count=1)
        naive.order.add(at, 1, 2)
    # Then no run of the later time covers the other consumer's entries
    later = [run for run in naive.order.runs() if run[0] == 2]
    assert len(later) == 50
    assert all(first == last for _, first, last in later)


def test_entries_added_with_one_time_in_any_order_are_in_order_of_arrival() -> None:
    # Given entries that got one time from the last to the first, and then again from the first
    naive = Naive()
    for seq in range(3000):
        naive.pel.insert(1, seq, owner=1, time=7, count=1)
    for seq in (*range(2999, -1, -1), *range(3000)):
        naive.order.add(naive.pel.find(1, seq), 1, 7)
    # Then they are in the order of the second pass
    assert [at[1] for _, at in naive.walked()] == list(range(3000))


class Counting(PendingList):
    """Counts the steps of a walk to the next record."""

    steps = 0

    def after(self, at: int) -> int:
        self.steps += 1
        return super().after(at)


def test_a_walk_costs_a_few_steps_for_each_pending_entry() -> None:
    # Given sixteen consumers with interleaved entries that are renewed again and again
    pel = Counting()
    order = DeliveryOrder(pel)
    for seq in range(512):
        order.add(pel.insert(1, seq, owner=1 + seq % 16, time=0, count=1), 1, 0)
    for turn in range(1, 200):
        owner = turn % 16
        for seq in range(owner, 512, 16):
            at = pel.find(1, seq)
            pel.change(at, owner=1 + owner, time=turn, count=1)
            order.add(at, 1, turn)
    # When a walk visits all of them
    pel.steps = 0
    assert len(list(order.walk())) == 512
    # Then it took no more steps than rule 3 permits
    assert pel.steps <= 4 * 512 + 64


def test_a_walk_removes_the_runs_of_settled_entries() -> None:
    # Given many singly delivered entries, of which all but the last are settled
    pel = Counting()
    order = DeliveryOrder(pel)
    for seq in range(1000):
        order.add(pel.insert(1, seq, owner=1, time=seq, count=1), 1, seq)
    for seq in range(999):
        pel.remove(pel.find(1, seq))
    # When a walk has run once, then the runs of the others are gone
    assert [pel.id(at) for at in order.walk()] == [(1, 999)]
    assert len(order) == 1


def test_the_head_is_found_quickly_after_the_first_search() -> None:
    # Given a long run of entries of which only the last was not renewed
    pel = Counting()
    order = DeliveryOrder(pel)
    for seq in range(1000):
        order.add(pel.insert(1, seq, owner=1, time=0, count=1), 1, 0)
    for seq in range(999):
        at = pel.find(1, seq)
        pel.change(at, owner=1, time=1, count=1)
        order.add(at, 1, 1)
    assert pel.time(order.begin().next()) == 0
    # When the head is searched for again
    pel.steps = 0
    assert pel.time(order.begin().next()) == 0
    # Then no entries were skipped again
    assert pel.steps <= 2


def test_mostly_settled_runs_are_rebuilt() -> None:
    # Given long runs with one entry left in each
    naive = Naive()
    for time in range(20):
        for seq in range(100):
            at = naive.pel.insert(time, seq, owner=1, time=time, count=1)
            naive.order.add(at, 1, time)
        for seq in range(1, 100):
            naive.pel.remove(naive.pel.find(time, seq))
    # When a walk visits them, in order
    assert [at for _, at in naive.walked()] == [(time, 0) for time in range(20)]
    # Then only they are covered
    assert naive.order.covered == 20


def test_an_emptied_order_is_ready_for_new_runs() -> None:
    naive = Naive()
    naive.do("own", (5, 5), 9)
    naive.do("settle", (5, 5), 0)
    naive.order.clear()
    naive.do("own", (1, 1), 3)
    assert naive.walked() == [(3, (1, 1))]
