"""Group mode, called as Spark calls it: entries are fetched, renewed and settled, and never lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.messages.dead import parse_dead_letter
from headwater.messages.keys import dead_letter_stream
from tests.spark.members import (
    CLAIM_AFTER_MS,
    Consumer,
    GroupQuery,
    abandoned,
    idle,
    member_query,
    owners,
)
from tests.spark.stores import Shop
from tests.waiting import eventually

pytestmark = pytest.mark.peer

STORES = ("headwater", "redis-8.2", "redis-7.0", "valkey-9.1")


@pytest.fixture
def worker(shop: Shop) -> Iterator[Consumer]:
    shop.add("s", [1])
    consumer = Consumer(shop)
    shop.client.delete("s")
    shop.client.xgroup_create("s", "g", "0", mkstream=True)
    yield consumer
    consumer.close()


def test_a_batch_is_settled_when_the_next_one_is_requested(shop: Shop) -> None:
    # Given a batch that was planned and read
    shop.add("s", range(1, 501))
    with member_query(shop) as query:
        assert query.plan()
        assert query.log[-1]["streams"]["s"]["runs"] == [
            ["1-1", "200-1", 200],
            ["201-1", "500-1", 300],
        ]
        assert query.read() == list(range(1, 501))
        assert len(owners(shop)) == 500

        # When Spark, after committing it, requests the next one
        shop.add("s", [501])
        assert query.plan()

        # Then it is settled, but the next one is not
        assert owners(shop) == {501: "spark"}
        assert [query.plan(), query.plan()] == [False, False]
        assert owners(shop) == {}


def test_many_small_streams_share_tasks(shop: Shop) -> None:
    # Given a batch of many streams with a few entries
    for number in range(1, 21):
        shop.add(f"many:{number}", range(1, 6))
        shop.client.xgroup_create(f"many:{number}", "g", "0")
    with member_query(shop, stream="many:*", minPartitions="4") as query:
        assert query.plan()

        # When it is divided into tasks
        tasks: Any = query.reader.partitions({}, query.log[-1])

        # Then each reads several of them, and all together each entry once
        assert [len(task.parts) for task in tasks] == [5] * 4
        assert sorted(query.read()) == sorted(20 * list(range(1, 6)))


def test_claimed_entries_are_named_singly(shop: Shop, worker: Consumer) -> None:
    shop.add("s", range(1, 11))
    abandoned(shop, 4)
    mine = worker.read(2, claims=False)

    with member_query(shop) as query:
        assert query.plan()

        # Then neither the worker's entries nor the claimed ones are part of a run
        assert query.log[-1]["streams"]["s"] == {
            "seen": "10-1",
            "runs": [["7-1", "10-1", 4]],
            "ids": {f"{number}-1": 2 for number in range(1, 5)},
        }
        assert query.read() == [1, 2, 3, 4, 7, 8, 9, 10]
        assert worker.settle(mine) == [True, True]
        assert not query.plan()
        assert owners(shop) == {}


def test_rows_contain_their_delivery_count_and_consumer(shop: Shop, worker: Consumer) -> None:
    from headwater.spark.core.ddl import parse_schema
    from headwater.spark.source import HeadwaterSource

    shop.add("s", range(1, 4))
    abandoned(shop, 1)
    options = {"url": shop.url, "stream": "s", "group": "g", "consumerPrefix": "tables"}
    schema = parse_schema("n bigint, _delivery_count int, _consumer string")
    reader = HeadwaterSource(options).streamReader(schema)
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        rows = [
            row
            for task in reader.partitions(start, end)
            for b in reader.read(task)
            for row in b.to_pylist()
        ]
    finally:
        reader.stop()

    assert [tuple(row.values()) for row in rows] == [
        (1, 2, "tables"),
        (2, 1, "tables"),
        (3, 1, "tables"),
    ]


@pytest.mark.parametrize(
    "step", ["initialOffset", "latestOffset", "log", "partitions", "read", "next"]
)
def test_a_query_killed_at_any_step_loses_nothing_and_settles_nothing_unread(
    shop: Shop, step: str
) -> None:
    # Given a query that has committed a batch of 10 and is killed in the next, at a step of Spark's
    shop.add("s", range(1, 31))
    log: list[Any] = []
    query = GroupQuery(shop, log=log, maxEntriesPerTrigger="10")
    rows: dict[int, list[int]] = {}
    if step != "initialOffset":
        assert query.plan()
        rows[1] = query.read()
        limit = query.reader.getDefaultReadLimit()
        end = query.ask("latestOffset", query.start, limit)
        if step != "latestOffset":
            log.append(end)
        if step == "partitions":
            query.reader.partitions(query.start, end)
        if step in ("read", "next"):
            rows[2] = query.read()
        if step == "next":
            query.start = end
            query.ask("latestOffset", end, limit)
    query.kill()

    # When it starts again, and logged but uncommitted batches are replayed
    with member_query(shop, log=log, maxEntriesPerTrigger="10") as again:
        committed = {"read": 1, "next": 2}.get(step, min(len(log), 1))
        for number in range(committed + 1, len(log) + 1):
            rows[number] = again.read(log[number - 1])
            assert set(rows[number]) <= set(owners(shop))
        while again.plan():
            rows[len(log)] = again.read()
            assert set(rows[len(log)]) <= set(owners(shop))

    # Then every entry is in one batch, and all are settled
    assert sorted(number for batch in rows.values() for number in batch) == list(range(1, 31))
    assert owners(shop) == {}


@pytest.mark.slow
def test_a_batchs_entries_are_renewed_while_it_runs(shop: Shop, worker: Consumer) -> None:
    shop.add("s", range(1, 6))
    with member_query(shop) as query:
        query.plan()

        # A worker tries to claim entries for three times the length of a lease
        looked = 0
        began = worker.client.time()
        while True:
            assert worker.read() == []
            looked += 1
            now = worker.client.time()
            if (now[0] - began[0]) * 1e6 + now[1] - began[1] > 3e3 * CLAIM_AFTER_MS:
                break
        assert looked > 3
        assert set(owners(shop).values()) == {"spark"}

    # Once the query has stopped, nothing is renewed and the worker claims its entries
    claimed = eventually(worker.read, "a worker claims a stopped query's entries")
    assert (claimed[0].id, claimed[0].delivery_count) == (b"1-1", 2)


def test_a_replayed_batch_is_renewed_and_read_completely(shop: Shop, worker: Consumer) -> None:
    # Given a killed query, and a worker that claimed some of its entries
    shop.add("s", range(1, 11))
    query = GroupQuery(shop)
    query.plan()
    query.kill()
    eventually(lambda: idle(shop, 10, "spark"), "its leases expire")
    taken = worker.read(4)
    assert [one.claimed for one in taken] == [True] * 4

    # When Spark replays the batch
    with member_query(shop, log=query.log) as again:
        assert again.read() == list(range(1, 11))

        # Then the other entries are renewed, and the worker settles its own
        assert not idle(shop, 6, "spark")
        assert worker.settle(taken) == [True] * 4
        assert not again.plan()
        assert owners(shop) == {}


def test_a_limit_is_exact_and_skips_no_stream(shop: Shop) -> None:
    for stream in ("a", "b", "c"):
        shop.add(stream, range(1, 8))
    with member_query(shop, stream="a,b,c", maxEntriesPerTrigger="2") as query:
        sizes, first = [], set()
        while query.plan():
            portions = query.log[-1]["streams"]
            sizes.append(len(query.read()))
            first |= {name for name, portion in portions.items() if "runs" in portion}
            if len(sizes) == 2:
                assert first == {"a", "b", "c"}
    assert sizes == [2] * 10 + [1]


@pytest.mark.slow
@pytest.mark.parametrize("most", [100, 10_000])
def test_of_many_streams_each_entry_is_read_once(shop: Shop, most: int) -> None:
    # Given many streams with none, a few or many entries
    sizes = {f"many:{n}": n % 4 for n in range(120)} | {"many:5": 500}
    for stream, size in sizes.items():
        shop.add(stream, range(1, size + 1))
        shop.client.xgroup_create(stream, "g", "0", mkstream=True)
    with member_query(shop, stream="many:*", maxEntriesPerTrigger=str(most)) as query:
        # When they are read
        batches = query.batches()

    # Then no batch is too large, and nothing is read twice or left out
    total = sum(sizes.values())
    assert [len(batch) for batch in batches[:-1]] == [most] * (total // most)
    numbers = sorted(n for batch in batches for n in batch)
    assert numbers == sorted(n for size in sizes.values() for n in range(1, size + 1))


@pytest.mark.slow
def test_of_many_streams_available_now_reads_pending_and_new_entries(shop: Shop) -> None:
    # Given many streams with entries of a consumer that is gone, and new ones
    for n in range(30):
        stream = f"many:{n}"
        shop.add(stream, range(1, 4))
        shop.client.xgroup_create(stream, "g", "0")
        shop.client.xreadgroup("g", "gone", {stream: ">"}, count=1)
        shop.client.xclaim(stream, "g", "gone", 0, ["1-1"], idle=10 * CLAIM_AFTER_MS)

    # When they are read once
    with member_query(shop, stream="many:*") as query:
        query.reader.prepareForTriggerAvailableNow()
        numbers = query.read_all()

    # Then each is read once
    assert sorted(numbers) == sorted(30 * [1, 2, 3])


def test_large_entries_end_a_batch_by_their_bytes(shop: Shop) -> None:
    shop.add("s", range(1, 1001), padding="x" * 1000)
    with member_query(shop, maxBytesPerTrigger="300000") as query:
        batches = query.batches()
    assert [len(batch) for batch in batches][:3] == [297, 297, 297]
    assert [n for batch in batches for n in batch] == list(range(1, 1001))


@pytest.mark.slow
def test_a_stream_that_a_pattern_finds_later_is_read_from_its_beginning(shop: Shop) -> None:
    shop.add("s.1", [1])
    shop.add("{s.1}.dead", [66])
    with member_query(shop, stream="*s.*", startingId="latest") as query:
        assert query.batches() == []
        shop.add("s.2", [2, 3])
        assert eventually(query.read_all) == [2, 3]


@pytest.mark.parametrize(
    ("starting", "numbers"), [("earliest", [1, 2, 3, 4]), ("latest", [4]), ("2", [2, 3, 4])]
)
def test_a_new_group_begins_where_the_options_say(
    shop: Shop, starting: str, numbers: list[int]
) -> None:
    shop.add("s", [1, 2, 3])
    with member_query(shop, startingId=starting) as query:
        shop.add("s", [4])
        assert query.read_all() == numbers
    # An existing group keeps its position
    with member_query(shop, startingId="earliest") as later:
        assert later.read_all() == []


def test_an_offset_that_was_not_logged_is_returned_again(shop: Shop) -> None:
    shop.add("s", [1, 2])
    with member_query(shop) as query:
        limit = query.reader.getDefaultReadLimit()
        first = query.ask("latestOffset", query.start, limit)
        shop.add("s", [3])
        assert query.ask("latestOffset", query.start, limit) == first


@pytest.mark.slow
def test_available_now_reads_existing_entries_and_ends(shop: Shop, worker: Consumer) -> None:
    shop.add("s", range(1, 3001))
    abandoned(shop, 1200)
    with member_query(shop, maxEntriesPerTrigger="500") as query:
        query.reader.prepareForTriggerAvailableNow()
        numbers: list[int] = []
        more = 3000
        while query.plan():
            numbers += query.read()
            shop.add("s", range(more + 1, more + 501))  # as fast as it reads
            more += 500
    assert set(range(1, 3001)) <= set(numbers)
    assert len(numbers) == len(set(numbers)) < 4000


def test_entries_delivered_too_often_become_dead_letters(shop: Shop, worker: Consumer) -> None:
    shop.add("s", range(1, 4))
    abandoned(shop, 2)
    shop.client.xclaim("s", "g", "gone", 0, ["1-1"], retrycount=5, idle=10 * CLAIM_AFTER_MS)

    with member_query(shop, maxDeliveries="5") as query:
        assert query.read_all() == [2, 3]

    records: Any = shop.client.xrange(dead_letter_stream("s"))
    ((_id, fields),) = records
    letter = parse_dead_letter("", [part for pair in fields.items() for part in pair])
    assert (letter.entry_id, letter.deliveries, letter.consumer) == ("1-1", 5, "spark")
    assert letter.error.startswith("MaxDeliveries: delivered 5 times")
    assert letter.fields == [(b"n", b"1")]
    assert owners(shop) == {}


def test_a_dead_letter_that_is_not_accepted_stays_pending(
    shop: Shop, worker: Consumer, warned: pytest.LogCaptureFixture
) -> None:
    shop.client.set("graves", "full")
    shop.add("s", range(1, 4))
    abandoned(shop, 1)
    shop.client.xclaim("s", "g", "gone", 0, ["1-1"], retrycount=5, idle=10 * CLAIM_AFTER_MS)

    with member_query(shop, maxDeliveries="5", deadLetterStream="graves") as query:
        assert query.read_all() == [2, 3]

    assert set(owners(shop)) == {1}
    assert "graves did not accept the dead letter" in warned.text


@pytest.mark.slow
def test_a_long_list_of_own_entries_is_fetched_in_parts(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.group_mode.fetch.MOST_SINGLES", 1_500)
    shop.add("s", range(1, 4001))
    first = GroupQuery(shop)
    first.plan()
    first.kill()

    # Nothing was logged, so all entries are fetched again, up to the limit at a time
    with member_query(shop) as query:
        batches = query.batches()
    assert [len(batch) for batch in batches] == [1500, 1500, 1000]
    assert [n for batch in batches for n in batch] == list(range(1, 4001))
    assert owners(shop) == {}
