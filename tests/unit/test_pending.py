"""The pending entries list against a dict, with blocks of eight records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.engine import pending
from headwater.engine.pending import NOBODY, NOWHERE, PendingList

ID = tuple[int, int]
Record = tuple[int, int, int]

ids = st.tuples(st.integers(0, 15), st.integers(0, 1))
counts = st.sampled_from([0, 1, 2, 2**32 - 2, 2**32 - 1, 2**32, 2**63 - 1])
records = st.tuples(st.integers(0, 3), st.integers(0, 1000), counts)
steps = st.lists(st.tuples(ids, st.one_of(st.none(), records)), max_size=120)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "PENDING_BLOCK_RECORDS", 8)


def carry_out(steps: list[tuple[ID, Record | None]]) -> tuple[PendingList, dict[ID, Record]]:
    pel = PendingList()
    model: dict[ID, Record] = {}
    for entry_id, record in steps:
        at = pel.find(*entry_id)
        assert (at != NOWHERE) == (entry_id in model)
        if record is None:
            if at != NOWHERE:
                pel.remove(at)
                del model[entry_id]
            continue
        owner, time, count = record
        if at == NOWHERE:
            at = pel.insert(*entry_id, owner=owner, time=time, count=count)
        else:
            pel.change(at, owner=owner, time=time, count=count)
        model[entry_id] = record
        assert pel.id(at) == entry_id
    return pel, model


def walked(pel: PendingList) -> dict[ID, Record]:
    found = {}
    at = pel.seek(0, 0)
    while at != NOWHERE:
        found[pel.id(at)] = (pel.owner(at), pel.time(at), pel.delivery_count(at))
        at = pel.after(at)
    return found


@given(steps)
@settings(max_examples=300)
def test_what_was_put_in_and_not_removed_is_there(steps: list[tuple[ID, Record | None]]) -> None:
    pel, model = carry_out(steps)
    assert list(walked(pel).items()) == sorted(model.items())
    assert len(pel) == len(model)
    if model:
        assert (pel.first(), pel.last()) == (min(model), max(model))


@given(steps, ids)
@settings(max_examples=200)
def test_seek_finds_the_first_at_or_past_an_id(
    steps: list[tuple[ID, Record | None]], entry_id: ID
) -> None:
    pel, model = carry_out(steps)
    at = pel.seek(*entry_id)
    expected = min((found for found in model if found >= entry_id), default=None)
    assert (None if at == NOWHERE else pel.id(at)) == expected


@given(steps)
@settings(max_examples=200)
def test_the_minimal_time_of_a_block_is_a_lower_bound(
    steps: list[tuple[ID, Record | None]],
) -> None:
    pel, _ = carry_out(steps)
    for block in pel.blocks:
        earliest = min(block.words[2::4])
        assert block.min_time <= earliest
        block.settle_min_time()
        assert block.min_time == earliest


@given(steps, st.integers(0, 3), ids)
@settings(max_examples=200)
def test_an_owners_records_are_found_from_any_place(
    steps: list[tuple[ID, Record | None]], owner: int, entry_id: ID
) -> None:
    pel, model = carry_out(steps)
    at = pel.owned_from(pel.seek(*entry_id), owner)
    owned = [found for found, record in model.items() if record[0] == owner and found >= entry_id]
    assert (None if at == NOWHERE else pel.id(at)) == min(owned, default=None)


@given(steps, st.integers(-1, 1001), ids)
@settings(max_examples=200)
def test_a_scan_for_old_deliveries_passes_over_none(
    steps: list[tuple[ID, Record | None]], time: int, entry_id: ID
) -> None:
    pel, model = carry_out(steps)
    found = []
    at = pel.seek(*entry_id)
    while (at := pel.delivered_from(at, time)) != NOWHERE:
        if pel.owner(at) == NOBODY or pel.time(at) <= time:
            found.append(pel.id(at))
        at = pel.after(at)
    wanted = [at for at, (owner, when, _) in model.items() if owner == NOBODY or when <= time]
    assert found == sorted(at for at in wanted if at >= entry_id)


@given(steps, st.integers(0, 3))
@settings(max_examples=200)
def test_an_owner_can_be_removed_with_all_its_records(
    steps: list[tuple[ID, Record | None]], owner: int
) -> None:
    pel, model = carry_out(steps)
    left = {at: record for at, record in model.items() if record[0] != owner}
    assert pel.remove_owner(owner) == len(model) - len(left)
    assert list(walked(pel).items()) == sorted(left.items())
    assert len(pel) == len(left)
    assert pel.owned_from(pel.seek(0, 0), owner) == NOWHERE


@given(steps)
@settings(max_examples=100)
def test_large_counts_leave_nothing_behind(steps: list[tuple[ID, Record | None]]) -> None:
    pel, model = carry_out(steps)
    large = {at: count for at, (_, _, count) in model.items() if count >= 2**32 - 1}
    assert pel.big_counts == large


def test_settling_at_random_leaves_no_block_for_each_survivor() -> None:
    # Given blocks full of records
    pel = PendingList()
    for seq in range(800):
        pel.insert(1, seq, owner=1, time=0, count=1)
    # When all but every eighth are settled
    for seq in range(800):
        if seq % 8:
            pel.remove(pel.find(1, seq))
    # Then those left share blocks
    assert len(pel) == 100
    assert len(pel.blocks) <= 60


def test_joined_blocks_keep_the_earlier_of_their_times() -> None:
    # Given a block of late times before one of early times
    pel = PendingList()
    for seq in range(16):
        pel.insert(1, seq, owner=1, time=100 if seq < 8 else 5, count=1)
    # When so many are settled that they become one
    for seq in (*range(9, 15), *range(1, 8)):
        pel.remove(pel.find(1, seq))
    # Then no early one is missed
    assert len(pel.blocks) == 1
    assert pel.blocks[0].min_time == 5


def test_nobody_is_no_consumers_number() -> None:
    pel = PendingList()
    at = pel.insert(1, 1, owner=NOBODY, time=0, count=5)
    assert pel.owner(at) == NOBODY
    assert pel.delivery_count(at) == 5
