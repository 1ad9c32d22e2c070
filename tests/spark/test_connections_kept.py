"""An executor's process opens one connection, keeps it, and checks it before each use."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.queries import Query
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer


def opened(shop: Shop) -> int:
    """Return how many connections the server has ever accepted."""
    stats: Any = shop.client.info("stats")
    return int(stats["total_connections_received"])


def test_a_process_reads_its_partitions_over_one_connection(shop: Shop) -> None:
    # Given a process that has read a partition
    shop.add("s", range(1, 101))
    query = Query(shop, minPartitions="4", maxEntriesPerTrigger="50")
    assert query.plan()
    query.read()
    before = opened(shop)

    # When it reads the next ones
    assert query.plan()
    rows = query.read() + query.read()

    # Then it has opened no other connection
    assert rows == [*range(51, 101)] * 2
    assert opened(shop) == before


def test_a_connection_that_the_server_has_closed_is_not_used(shop: Shop) -> None:
    shop.add("s", range(1, 11))
    query = Query(shop)
    assert query.plan()
    query.read()

    for each in shop.client.client_list():
        if int(each["id"]) != int(shop.client.client_id()):
            shop.client.execute_command("CLIENT KILL", "ID", each["id"])

    assert query.read() == list(range(1, 11))


@pytest.mark.slow
def test_an_unfinished_partition_leaves_no_reply_behind(shop: Shop) -> None:
    # Given a task that ended after its first page, while the next one was on its way
    shop.add("s", range(1, 2001))
    query = Query(shop)
    assert query.plan()
    (partition,) = query.reader.partitions({}, query.log[-1])
    pages: Any = query.reader.read(partition)
    assert next(pages).num_rows < 2000
    pages.close()

    # Then the next task reads its own entries and no others
    assert query.read() == list(range(1, 2001))
