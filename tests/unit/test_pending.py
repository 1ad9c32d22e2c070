"""The pending entries list compared with a dict, with blocks of eight records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.common.model import flat_words, id_pairs
from headwater.engine.groups import pending
from headwater.engine.groups.pending import NOBODY, NOWHERE, PendingList

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


@pytest.mark.slow
@given(steps)
@settings(max_examples=300)
def test_records_that_were_added_and_not_removed_are_there(
    steps: list[tuple[ID, Record | None]],
) -> None:
    pel, model = carry_out(steps)
    assert list(walked(pel).items()) == sorted(model.items())
    assert len(pel) == len(model)
    if model:
        assert (pel.first(), pel.last()) == (min(model), max(model))


@given(steps, ids)
@settings(max_examples=200)
def test_seek_finds_the_first_record_at_or_after_an_id(
    steps: list[tuple[ID, Record | None]], entry_id: ID
) -> None:
    pel, model = carry_out(steps)
    at = pel.seek(*entry_id)
    expected = min((found for found in model if found >= entry_id), default=None)
    assert (None if at == NOWHERE else pel.id(at)) == expected


moments = st.one_of(
    st.integers(0, 40),
    st.integers(2**40, 2**40 + 5),
    st.sampled_from([2**48 - 1, 2**48, 2**63, 2**64 - 1]),
)
"""Evenly spread, clustered, and as far apart as ids can be."""


@given(st.sets(st.tuples(moments, st.integers(0, 2)), max_size=150), moments)
@settings(max_examples=300)
def test_an_id_is_found_in_any_distribution_of_ids(spread: set[ID], ms: int) -> None:
    # Given a list of many blocks
    pel, present = PendingList(), sorted(spread)
    for entry_id in present:
        pel.insert(*entry_id, owner=1, time=0, count=1)
    for wanted in [*present, (ms, 0), (ms, 1)]:
        # When an id is searched for from the beginning
        pel.seek(0, 0)
        at = pel.seek(*wanted)
        # Then it or the next one is found
        expected = min((found for found in present if found >= wanted), default=None)
        assert (None if at == NOWHERE else pel.id(at)) == expected
        assert pel.find(*wanted) == (at if wanted in spread else NOWHERE)


@given(steps)
@settings(max_examples=200)
def test_the_minimal_time_of_a_block_is_a_lower_bound(
    steps: list[tuple[ID, Record | None]],
) -> None:
    pel, _ = carry_out(steps)
    for block in pel.blocks:
        earliest = min(block.records()[2::4])
        assert block.min_time <= earliest
        block.settle_min_time()
        assert block.min_time == earliest


@given(steps, st.integers(0, 3), ids)
@settings(max_examples=200)
def test_the_records_of_an_owner_are_found_from_any_position(
    steps: list[tuple[ID, Record | None]], owner: int, entry_id: ID
) -> None:
    pel, model = carry_out(steps)
    at = pel.owned_from(pel.seek(*entry_id), owner)
    owned = [found for found, record in model.items() if record[0] == owner and found >= entry_id]
    assert (None if at == NOWHERE else pel.id(at)) == min(owned, default=None)


@given(steps, st.integers(-1, 1001), ids)
@settings(max_examples=200)
def test_a_scan_for_old_deliveries_misses_none(
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
def test_large_counts_of_removed_records_are_removed(steps: list[tuple[ID, Record | None]]) -> None:
    pel, model = carry_out(steps)
    large = {at: count for at, (_, _, count) in model.items() if count >= 2**32 - 1}
    assert pel.big_counts == large


def test_blocks_are_joined_after_random_settlements() -> None:
    # Given blocks full of records
    pel = PendingList()
    for seq in range(800):
        pel.insert(1, seq, owner=1, time=0, count=1)
    # When all but every eighth are settled
    for seq in range(800):
        if seq % 8:
            pel.remove(pel.find(1, seq))
    # Then the remaining ones share blocks
    assert len(pel) == 100
    assert len(pel.blocks) <= 60


def test_joined_blocks_have_the_earlier_of_their_times() -> None:
    # Given a block of late times before one of early times
    pel = PendingList()
    for seq in range(16):
        pel.insert(1, seq, owner=1, time=100 if seq < 8 else 5, count=1)
    # When so many are settled that the blocks are joined
    for seq in (*range(9, 15), *range(1, 8)):
        pel.remove(pel.find(1, seq))
    # Then min_time is the early time
    assert len(pel.blocks) == 1
    assert pel.blocks[0].min_time == 5


@pytest.mark.slow
@given(steps, st.lists(ids, max_size=8, unique=True), ids)
@settings(max_examples=200)
def test_appending_and_removing_runs_equals_single_records(
    steps: list[tuple[ID, Record | None]], added: list[ID], from_id: ID
) -> None:
    # Given a list, and ids after all of its ids
    pel, model = carry_out(steps)
    more = sorted((ms + 100, seq) for ms, seq in added)
    # When they are appended at once
    at = pel.append(flat_words(more), 0, len(more), 7, 3)
    assert at == (pel.find(*more[0]) if more else NOWHERE)
    model |= dict.fromkeys(more, (3, 7, 1))
    assert list(walked(pel).items()) == sorted(model.items())
    assert len(pel) == len(model)
    # And adjacent records of one block are removed at once
    at = pel.seek(*from_id)
    if at != NOWHERE:
        block = pel.block_at(at)
        left = sorted(found for found in model if found >= pel.id(at))
        count = min(5, block.end - pel.number_in_block(at))
        pel.remove(at, count)
        for gone in left[:count]:
            del model[gone]
    # Then the other records remain
    assert list(walked(pel).items()) == sorted(model.items())
    assert len(pel) == len(model)


@given(steps, st.lists(ids, max_size=8))
@settings(max_examples=200)
def test_keep_pending_drops_other_ids(
    steps: list[tuple[ID, Record | None]], wanted: list[ID]
) -> None:
    pel, model = carry_out(steps)
    words = flat_words(wanted)
    pel.keep_pending(words)
    assert id_pairs(words) == [entry_id for entry_id in wanted if entry_id in model]


@given(steps, ids)
@settings(max_examples=200)
def test_only_a_block_that_has_the_deleted_entry_is_dangling(
    steps: list[tuple[ID, Record | None]], deleted: ID
) -> None:
    pel, model = carry_out(steps)
    pel.mark_gone(*deleted)
    at = pel.find(*deleted)
    marked = [block for block in pel.blocks if block.dangling]
    assert marked == ([pel.block_at(at)] if deleted in model else [])


def test_settling_in_order_moves_no_record() -> None:
    # Given a full block
    pel = PendingList()
    pel.append(flat_words([(1, seq) for seq in range(8)]), 0, 8, 5, 1)
    words = pel.blocks[0].words[:]
    # When its first records are settled, one after the other
    for seq in range(5):
        pel.remove(pel.find(1, seq))
    # Then the others are at the same positions
    assert pel.blocks[0].words == words
    assert pel.blocks[0].head == 5
    assert [pel.id(at) for at in (pel.block_start(0), pel.find(1, 7))] == [(1, 5), (1, 7)]


def test_a_full_block_allocates_only_its_records() -> None:
    pel = PendingList()
    for seq in range(9):
        pel.insert(1, seq, owner=1, time=0, count=1)
    assert [len(block.words) for block in pel.blocks] == [4 * 8, 4 * 4]


def test_nobody_is_not_the_number_of_a_consumer() -> None:
    pel = PendingList()
    at = pel.insert(1, 1, owner=NOBODY, time=0, count=5)
    assert pel.owner(at) == NOBODY
    assert pel.delivery_count(at) == 5
