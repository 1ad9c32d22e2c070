"""The Spark source and sink on clusters, while slots move and shards fail over, and with Sentinels."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from headwater.client.sync.connect import connect
from headwater.errors import DataLoss, HeadwaterError
from headwater.spark.core.options import parse_options
from headwater.spark.core.store import SourceStore
from headwater.spark.source import HeadwaterSource
from tests.clusters.clusters import Cluster, Sentinels, until
from tests.spark.members import GroupQuery, member_query
from tests.spark.queries import SCHEMA, Query, ranges_of
from tests.spark.stores import Shop
from tests.spark.writes import Rows, Writing, numbers

pytestmark = [pytest.mark.clusters, pytest.mark.slow]

STREAMS = [f"s:{n}" for n in range(20)]
"""Streams of all three shards."""


@pytest.fixture
def shop(cluster: Cluster) -> Iterator[Shop]:
    with connect(cluster.url, protocol=2) as client:
        yield Shop(cluster.name, cluster.url, client)


@pytest.fixture(autouse=True)
def found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.spark.core.store._SEARCH_SECONDS", 0.0)
    monkeypatch.setattr("headwater.spark.core.store._SEARCH_SHARE", 0.0)


class Numbers:
    """Adds the next numbers to the streams, one after the other; each number is in one stream."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._lock = threading.Lock()
        self.last = 0

    def more(self, count: int) -> None:
        with self._lock:
            for number in range(self.last + 1, self.last + count + 1):
                self._shop.add(STREAMS[number % len(STREAMS)], [number])
                self.last = number

    def all(self) -> list[int]:
        return list(range(1, self.last + 1))


def test_the_url_of_a_cluster_node_is_refused_with_the_clusters(cluster: Cluster) -> None:
    url = cluster.other("orders").peer.url
    said = rf"is a node of a cluster.*write redis\+cluster://127.0.0.1:{url.rpartition(':')[2]}"
    for stream in ("orders", "s:*"):
        with pytest.raises(HeadwaterError, match=said):
            HeadwaterSource({"url": url, "stream": stream}).reader(SCHEMA).partitions()


def test_a_pattern_finds_the_streams_of_all_shards(cluster: Cluster, shop: Shop) -> None:
    # Given streams on every shard
    entries = Numbers(shop)
    entries.more(200)
    assert len({cluster.owner(stream).port for stream in STREAMS}) == 3

    # When they are read in batches and in one go
    query = Query(shop, stream="s:*", maxEntriesPerTrigger="70")
    batches = query.batches()
    reader = HeadwaterSource({"url": shop.url, "stream": "s:*"}).reader(SCHEMA)
    tasks = reader.partitions()
    rows = [n for task in tasks for part in reader.read(task) for n in part.column("n").to_pylist()]

    # Then each entry is read once
    assert sorted(n for batch in batches for n in batch) == entries.all()
    assert [len(batch) for batch in batches] == [70, 70, 60]
    assert sorted(rows) == entries.all()
    assert {one.stream for one in ranges_of(tasks)} == set(STREAMS)


@pytest.mark.parametrize("pattern", [True, False], ids=["pattern", "names"])
def test_each_entry_is_read_once_while_slots_move(
    cluster: Cluster, shop: Shop, *, pattern: bool
) -> None:
    # Given a running query
    entries = Numbers(shop)
    entries.more(100)
    query = Query(shop, stream="s:*" if pattern else ",".join(STREAMS), maxEntriesPerTrigger="50")
    found = [n for batch in query.batches() for n in batch]

    # When slots move, and entries are added and read before, between and after the steps
    def between() -> None:
        entries.more(30)
        while query.plan():
            found.extend(query.read())

    for stream in STREAMS[:3]:
        cluster.move(stream, between=between)
        between()

    # Then each entry was read once
    assert sorted(found) == entries.all()
    later = Query(shop, log=query.log, stream="s:*")
    assert later.batches() == []


def test_each_entry_is_read_once_while_a_shard_fails_over(cluster: Cluster, shop: Shop) -> None:
    # Given a running query, and entries that the replicas have
    entries = Numbers(shop)
    entries.more(100)
    query = Query(shop, stream="s:*", maxEntriesPerTrigger="30")
    found = list[int]()
    assert query.plan()
    found += query.read()
    until(cluster.can_fail_over, "every shard can fail over")

    # When a primary dies
    owner = cluster.owner(STREAMS[0])
    owner.kill()

    # Then the query goes on with the new primary, and reads each entry once
    found += [n for batch in query.batches() for n in batch]
    assert cluster.owner(STREAMS[0]) is not owner
    entries.more(40)
    found += [n for batch in query.batches() for n in batch]
    assert sorted(found) == entries.all()


def test_entries_that_a_failover_lost_after_they_were_read_are_data_loss(
    cluster: Cluster, shop: Shop
) -> None:
    # Given entries that were read, and that no replica has
    shop.add("s:0", range(1, 6))
    query = Query(shop, stream="s:*")
    until(cluster.can_fail_over, "every shard can fail over")
    owner, replica = cluster.owner("s:0"), cluster.replica("s:0")
    replica.peer.process.send_signal(signal.SIGSTOP)
    try:
        owner.ask("CLIENT", "KILL", "TYPE", "replica")
        time.sleep(0.2)
        shop.add("s:0", range(6, 11))
        assert query.batches() == [list(range(1, 11))]

        # When the primary dies
        owner.kill()
    finally:
        replica.peer.process.send_signal(signal.SIGCONT)

    # Then the query names the stream
    with pytest.raises(DataLoss, match="'s:0' was deleted, recreated or set back"):
        query.plan()


def test_a_group_query_reads_all_shards_while_a_slot_moves(cluster: Cluster, shop: Shop) -> None:
    # Given streams of all shards with a group
    for n, stream in enumerate(STREAMS):
        shop.add(stream, [n + 1])
        shop.client.xgroup_create(stream, "g", "0")
    with member_query(shop, stream="s:*", maxEntriesPerTrigger="7") as query:
        found = query.read_all()

        # When a slot moves, with entries before and after
        shop.add("s:0", [101, 102])
        cluster.move("s:0", between=lambda: found.extend(query.read_all()))
        shop.add("s:0", [103])
        found += query.read_all()
        assert not query.plan()

    # Then each entry was read once, and is settled
    assert sorted(found) == [*range(1, 21), 101, 102, 103]
    assert shop.client.execute_command("XPENDING", "s:0", "g")["pending"] == 0
    # And the consumer's name is free
    with member_query(shop, stream="s:*") as again:
        assert not again.plan()


def test_a_second_group_query_of_the_same_name_is_refused(cluster: Cluster, shop: Shop) -> None:
    shop.add("s:0", [1])
    with member_query(shop, stream="s:*") as query:
        query.plan()
        with pytest.raises(HeadwaterError, match="another query reads as 'spark'"):
            GroupQuery(shop, stream="s:*").plan()


def test_the_sink_writes_once_while_its_slot_moves_and_its_shard_fails_over(
    cluster: Cluster, shop: Shop
) -> None:
    # Given a query that has written a batch to a stream of the cluster
    writing = Writing(shop, stream="out")
    writing.epoch(0, numbers(30, 20))

    # When its slot moves between two batches, and its primary dies after the next
    cluster.move("out")
    writing.epoch(1, numbers(10, 5, start=51))
    until(cluster.can_fail_over, "every shard can fail over")
    shop.client.execute_command("XLEN", "out")
    cluster.owner("out").kill()
    writing.epoch(2, numbers(5, start=66))

    # Then a replay of the last batch adds nothing, and each row is there once
    writing.epoch(2, numbers(5, start=66))
    assert shop.numbers("out") == list(range(1, 71))


def test_the_sink_waits_for_a_slot_that_moves(cluster: Cluster, shop: Shop) -> None:
    # Given a slot that is moving, with the stream already at the new node
    writing = Writing(shop, stream="out")
    writing.epoch(0, numbers(3))
    with ThreadPoolExecutor() as thread:
        written: list[Future[None]] = []

        def between() -> None:
            if not written:
                written.append(thread.submit(writing.epoch, 1, numbers(3, start=4)))
                time.sleep(0.5)

        # When a batch is written
        cluster.move("out", between=between, first="out")

        # Then it is there once when the slot has moved
        written[0].result()
    assert shop.numbers("out") == [1, 2, 3, 4, 5, 6]


def test_rows_are_routed_to_streams_of_all_shards_while_a_slot_moves(
    cluster: Cluster, shop: Shop
) -> None:
    # Given a query whose rows name streams of all three shards
    writing = Writing(shop, "to string, n bigint")
    del writing.options["stream"]
    writing.options["streamColumn"] = "to"

    def rows(first: int, last: int) -> Rows:
        return [{"to": STREAMS[n % 20], "n": n} for n in range(first, last + 1)]

    writing.epoch(0, [rows(1, 60), rows(61, 100)])

    # When a slot moves between two batches, of which the last one is repeated
    cluster.move(STREAMS[7])
    for _repeated in range(2):
        writing.epoch(1, [rows(101, 130), rows(131, 140)])

    # Then each row is in its stream once
    for place, stream in enumerate(STREAMS):
        assert shop.numbers(stream) == [n for n in range(1, 141) if n % 20 == place]


def test_the_source_reads_the_primary_that_sentinels_name(sentinels: Sentinels) -> None:
    sentinels.primary().client.xadd("orders", {"id": "1"})
    store = SourceStore(parse_options({"url": sentinels.url, "stream": "orders"}))
    state = store.state("orders")
    store.close()
    assert state is not None
    assert state.entries_added == 1
