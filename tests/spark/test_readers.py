"""The log mode's readers, called as Spark calls them: offsets, replays, contents of batches."""

from __future__ import annotations

import pytest
import redis
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.errors import DeclarationError
from headwater.spark.core.queries import committed
from headwater.spark.decoding.reading import FIRST_PAGE
from headwater.spark.log_mode.offsets import positions_of, query_of
from headwater.spark.log_mode.streaming import shares
from headwater.spark.source import HeadwaterSource
from headwater.testing.server import server_process
from tests.spark.queries import SCHEMA, Query, ranges_of
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer


def test_batches_contain_each_entry_once_in_order(shop: Shop) -> None:
    shop.add("s", range(1, 8001))
    query = Query(shop)

    first = query.batches()
    shop.add("s", range(8001, 8003))

    assert first == [list(range(1, 8001))]
    assert query.batches() == [[8001, 8002]]
    assert query.batches() == []


def test_max_entries_per_trigger_is_exact(shop: Shop) -> None:
    shop.add("s", range(1, 1001))
    shop.delete("s", *range(100, 200))

    sizes = [len(batch) for batch in Query(shop, maxEntriesPerTrigger="64").batches()]

    assert sizes == [64] * 14 + [4]


def test_max_entries_per_trigger_is_divided_among_streams(shop: Shop) -> None:
    shop.add("a", range(1, 101))
    shop.add("b", range(1, 4))
    shop.add("c", range(1, 101))

    query = Query(shop, stream="a,b,c", maxEntriesPerTrigger="11")
    query.plan()

    ends = positions_of(query.log[0])
    assert {name: at.added for name, at in ends.items()} == {"a": 4, "b": 3, "c": 4}
    assert len(query.read()) == 11
    assert sum(map(len, query.batches())) == 203 - 11


def test_shares_are_equal_and_what_one_stream_does_not_need_goes_to_the_others() -> None:
    assert shares({"a": 10**6, "b": 1}, 10) == {"a": 9, "b": 1}
    assert shares({"a": 5, "b": 5, "c": 5}, 2) == {"a": 1, "b": 1, "c": 0}
    assert shares({"a": 2}, 10) == {"a": 2}
    assert shares({}, 10) == {}


def test_a_replay_equals_the_first_run_after_more_entries_were_added(shop: Shop) -> None:
    shop.add("s", range(1, 500))
    query = Query(shop, maxEntriesPerTrigger="200")
    query.plan()
    first = query.read()
    shop.add("s", range(500, 900))

    again = Query(shop, log=query.log, maxEntriesPerTrigger="7", minPartitions="5")

    assert again.read() == first == list(range(1, 201))
    again.plan()
    assert again.read() == list(range(201, 208))


def test_min_partitions_splits_evenly(shop: Shop) -> None:
    shop.add("s", range(1, 1001))
    query = Query(shop, minPartitions="7")
    query.plan()

    parts = query.reader.partitions({}, query.log[-1])

    counts = [part.count for part in ranges_of(parts)]
    assert sorted(counts) == [142] + [143] * 6


def test_many_small_streams_share_tasks(shop: Shop) -> None:
    # Given a batch of many streams with a few entries, and one with more
    for number in range(1, 61):
        shop.add(f"many:{number}", range(1, 11))
    shop.add("many:large", range(1, 401))
    query = Query(shop, stream="many:*", minPartitions="5")
    query.plan()

    # When it is divided into tasks
    tasks = query.reader.partitions({}, query.log[-1])

    # Then each has as many entries as the others, of one stream or of many
    sizes = [sum(part.count for part in ranges_of([task])) for task in tasks]
    assert sizes == [200] * 5
    assert {len(ranges_of([task])) for task in tasks} == {1, 20}
    assert sorted(query.read()) == sorted([*range(1, 401), *(60 * list(range(1, 11)))])


def test_a_task_reads_at_most_the_entries_that_the_option_allows(shop: Shop) -> None:
    # Given a stream with more entries than a task may read
    shop.add("s", range(1, 1001))
    query = Query(shop, maxEntriesPerPartition="300")
    query.plan()

    # When its batch is divided into tasks
    tasks = query.reader.partitions({}, query.log[-1])

    # Then none reads more
    assert [part.count for part in ranges_of(tasks)] == [250] * 4
    assert query.read() == list(range(1, 1001))


def test_latest_is_determined_once_and_then_taken_from_the_log(shop: Shop) -> None:
    shop.add("s", range(1, 11))
    query = Query(shop, startingId="latest")
    shop.add("s", range(11, 21))

    assert query.ask("initialOffset") == query.start
    assert query.plan()
    assert query.read() == list(range(11, 21))
    # After a run that failed before it read anything, the next one begins where the first began.
    assert Query(shop, log=query.log[:1], startingId="latest").read() == list(range(11, 21))


def test_latest_is_logged_even_if_there_is_nothing_to_read(shop: Shop) -> None:
    shop.add("s", range(1, 11))
    query = Query(shop, startingId="latest")

    assert query.plan()
    assert query.read() == []
    assert not query.plan()
    shop.add("s", range(11, 13))
    assert Query(shop, log=query.log, startingId="latest").batches() == [[11, 12]]


@pytest.mark.parametrize(
    ("starting", "first"), [("earliest", 3), ("0-0", 3), ("50", 50), ("50-2", 51), ("101-0", None)]
)
def test_reading_begins_at_starting_id(shop: Shop, starting: str, first: int | None) -> None:
    shop.add("s", range(1, 101))
    shop.delete("s", 1, 2)

    query = Query(shop, startingId=starting)
    shop.add("s", [101])

    assert query.batches() == [list(range(first or 101, 102))]


def test_available_now_ends_where_the_streams_ended_when_it_began(shop: Shop) -> None:
    shop.add("a", range(1, 101))
    query = Query(shop, stream="[ab]", maxEntriesPerTrigger="40")
    query.reader.prepareForTriggerAvailableNow()
    shop.add("a", range(101, 201))
    shop.add("b", range(1, 11))

    assert query.batches() == [
        list(range(1, 41)),
        list(range(41, 81)),
        list(range(81, 101)),
    ]
    later = Query(shop, log=query.log, stream="[ab]")
    assert sorted(later.batches()[0]) == sorted([*range(101, 201), *range(1, 11)])


def test_a_stream_that_a_pattern_finds_later_is_read_from_its_beginning(
    shop: Shop,
) -> None:
    shop.add("orders.a", [1])
    query = Query(shop, stream="orders.*", startingId="latest")
    query.plan()
    shop.add("orders.b", [2, 3])
    shop.add("orders.a", [4])

    assert sorted(query.batches()[0]) == [2, 3, 4]


def test_a_missing_stream_is_refused_with_the_nearest_existing_one(shop: Shop) -> None:
    shop.add("orders", [1])
    shop.client.xadd("{orders}:hw:stage:1", {"n": 1})

    for read in (
        lambda: Query(shop, stream="order"),
        HeadwaterSource({"url": shop.url, "stream": "order"}).reader(SCHEMA).partitions,
    ):
        with pytest.raises(DeclarationError, match=r"no stream 'order' at .*Did you mean 'orders'"):
            read()
    with pytest.raises(DeclarationError, match=r"A pattern like 'x\*' finds"):
        Query(shop, stream="x")


def test_a_pattern_waits_for_a_stream_that_does_not_exist_yet(shop: Shop) -> None:
    query = Query(shop, stream="s*", startingId="latest")
    query.plan()
    shop.add("s", [1, 2])

    assert query.batches() == [[1, 2]]


def test_a_query_waits_for_entries_of_an_empty_stream(shop: Shop) -> None:
    shop.client.xgroup_create("s", "g", mkstream=True)
    query = Query(shop)
    query.plan()
    shop.add("s", [1, 2])

    assert query.batches() == [[1, 2]]


def test_a_stream_that_is_no_longer_named_keeps_its_position(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    shop.add("a", [1])
    shop.add("b", [2])
    both = Query(shop, stream="a,b")
    both.plan()
    only_a = Query(shop, log=both.log, stream="a")
    shop.add("a", [3])
    shop.add("b", [4])

    assert only_a.batches() == [[3]]
    (message,) = warned.messages
    assert "a position in b" in message
    assert Query(shop, log=only_a.log, stream="a,b").batches() == [[4]]


def test_a_stream_added_to_the_list_begins_where_the_options_say(shop: Shop) -> None:
    shop.add("a", [1])
    query = Query(shop, stream="a")
    query.plan()
    shop.add("b", range(1, 11))
    shop.client.xtrim("b", maxlen=3, approximate=False)

    longer = Query(shop, log=query.log, stream="a,b")

    assert longer.batches() == [[8, 9, 10]]


@pytest.mark.parametrize("asked", ["b", "b*"])
def test_a_checkpoint_of_another_stream_is_refused(shop: Shop, asked: str) -> None:
    shop.add("a", [1])
    shop.add("b", [2])
    query = Query(shop, stream="a")
    query.plan()

    # After a committed batch Spark plans first; after a logged one that is not committed, it reads first
    for step in ("plan", "read"):
        with pytest.raises(
            DeclarationError, match=r"checkpoint belongs to a, but .* includes none of"
        ):
            getattr(Query(shop, log=query.log, stream=asked), step)()


def test_a_query_stores_its_offset_at_the_server_when_it_is_committed(shop: Shop) -> None:
    shop.add("s", range(1, 31))
    query = Query(shop, maxEntriesPerTrigger="10")

    def stored() -> list[tuple[str, str]]:
        return [(one.query, str(one.id)) for one in committed(shop.client, "s")]

    # Spark plans a batch only after the one before it was committed
    query.plan()
    name = query_of(query.log[0])
    assert stored() == [(name, "0-0")]
    query.plan()
    assert stored() == [(name, "11-0")]
    # A restarted query stores its offset under the same name
    again = Query(shop, log=query.log, maxEntriesPerTrigger="10")
    again.read()
    assert stored() == [(name, "11-0")]
    again.batches()
    assert stored() == [(name, "30-1")]
    # Another query has its own name
    other = Query(shop)
    other.plan()
    assert [name for name, _at in stored()] == [query_of(other.log[0]), name]


def test_a_checkpoint_from_before_queries_had_ids_is_continued_and_gets_one(shop: Shop) -> None:
    # Given offsets without an id: one before any batch, and one of a batch that is not committed
    shop.add("s", range(1, 11))
    before_any = [{"s": {"to": "3-1", "added_to": 3}}]
    uncommitted = [{"s": {"from": "3-1", "added_from": 3, "to": "9-1", "added_to": 9}}]

    # Then the batch is read unchanged, and later entries are read once, under one new id
    assert Query(shop, log=before_any).batches() == [list(range(4, 11))]
    query = Query(shop, log=uncommitted)
    assert query.read() == list(range(4, 10))
    assert query.batches() == [[10]]
    assert Query(shop, log=query.log).batches() == []
    assert query_of(query.log[-1]) is not None


def test_a_batch_reads_the_current_entries(shop: Shop) -> None:
    shop.add("a", range(1, 3001))
    shop.add("b", [5])
    shop.delete("a", 7)
    source = HeadwaterSource({"url": shop.url, "stream": "a,b", "minPartitions": "4"})

    reader = source.reader(SCHEMA)
    rows = [
        (stream, number)
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for stream, number in zip(
            batch.column("stream").to_pylist(), batch.column("n").to_pylist(), strict=True
        )
    ]

    assert rows == [("a", n) for n in range(1, 3001) if n != 7] + [("b", 5)]
    with pytest.raises(DeclarationError, match="latest reads nothing"):
        HeadwaterSource({"url": shop.url, "stream": "a", "startingId": "latest"}).reader(SCHEMA)


def test_the_driver_reports_the_ends_of_the_streams(shop: Shop) -> None:
    shop.add("s", range(1, 101))
    query = Query(shop, maxEntriesPerTrigger="10")
    assert query.reader.reportLatestOffset() is None

    query.plan()

    assert query.ask("reportLatestOffset")["s"] == {
        "from": "0-0",
        "added_from": 0,
        "to": "100-1",
        "added_to": 100,
    }
    everything = query.ask("latestOffset", query.start, ReadAllAvailable())
    assert everything["s"]["added_to"] == 100


def test_large_entries_are_read_completely_in_smaller_pages(shop: Shop) -> None:
    # Given 30 MB in more entries than the first page has, whatever their size
    shop.add("s", range(1, 101), body="x" * 300_000)
    query = Query(shop)
    query.plan()

    (partition,) = query.reader.partitions({}, query.log[-1])
    first, *others = [batch.num_rows for batch in query.reader.read(partition)]

    assert first + sum(others) == 100
    assert max(others) < first == FIRST_PAGE


def test_reading_waits_for_a_server_that_is_restarted() -> None:
    with (
        server_process("--appendfsync", "always") as server,
        redis.Redis.from_url(server.url) as one,
    ):
        shop = Shop("headwater", server.url, one)
        shop.add("s", range(1, 2001))
        query = Query(shop)
        query.plan()
        (partition,) = query.reader.partitions({}, query.log[-1])
        pages = query.reader.read(partition)
        first = next(pages)

        server.kill()
        server.start()

        rest = [number for batch in pages for number in batch.column("n").to_pylist()]
        assert first.column("n").to_pylist() + rest == list(range(1, 2001))
        shop.add("s", [2001])
        assert query.batches() == [[2001]]
