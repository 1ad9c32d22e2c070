"""A query and worker processes in one group: every entry is read or handled, whichever process dies."""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest

from tests.spark.members import GroupQuery, member_query, owners
from tests.spark.stores import Shop
from tests.waiting import eventually
from tests.worker.processes import one_worker

pytestmark = [pytest.mark.peer, pytest.mark.slow]

STORES = ("headwater", "redis-8.2")


def add(shop: Shop, numbers: range) -> None:
    """Add orders in the form that the workers' app and the query read."""
    pipeline = shop.client.pipeline(transaction=False)
    for number in numbers:
        pipeline.xadd("orders", {"id": number, "n": number, "do": "yield"}, id=f"{number}-1")
    pipeline.execute()


def handled(shop: Shop) -> list[int]:
    """Return the numbers of the orders that workers have handled, from the results that they have published."""
    results: Any = shop.client.xrange("invoices")
    return [int(fields[b"order"]) for _id, fields in results]


def test_each_entry_goes_to_the_query_or_to_a_worker_if_none_dies(shop: Shop) -> None:
    # Given a worker and a query in one group, and entries that are added gradually
    rows: list[int] = []
    with (
        one_worker(shop.url, SHOP_CLAIM_AFTER="20s"),
        member_query(shop, stream="orders", minIdleTime="20s", maxEntriesPerTrigger="20") as query,
    ):
        for first in range(1, 1001, 100):
            add(shop, range(first, first + 100))
            if query.plan():
                rows += query.read()
            eventually(lambda: handled(shop), "the worker's first result")

        # When both have nothing left to read
        def everything() -> bool:
            rows.extend(query.read_all())
            return len(rows) + len(handled(shop)) >= 1000

        eventually(everything, "reading or handling of all entries")

        # Then each was read or handled once, and the query has had a share
        assert sorted(rows + handled(shop)) == list(range(1, 1001))
        assert rows
        assert not query.plan()
        eventually(lambda: not owners(shop, "orders"), "the settlement of all entries")


@pytest.mark.parametrize("seed", [1, 2])
def test_no_entry_is_lost_if_consumers_workers_and_the_query_die(shop: Shop, seed: int) -> None:
    # Given a query, whose sink has the rows of each batch by its number in the log, so that a batch that is read
    # again replaces itself
    chance = random.Random(seed)
    log: list[Any] = []
    sink: dict[int, list[int]] = {}
    options = {"stream": "orders", "minIdleTime": "1s", "maxEntriesPerTrigger": "40"}

    def started() -> GroupQuery:
        query = GroupQuery(shop, log=log, **options)
        if log and len(log) not in sink:
            sink[len(log)] = query.read()
        return query

    def run_batch(query: GroupQuery) -> None:
        if query.plan():
            sink[len(log)] = query.read()

    # When workers are killed, consumers read and never settle, and the query dies at different steps
    query = started()
    for first in range(1, 801, 80):
        add(shop, range(first, first + 60))
        with one_worker(shop.url, SHOP_CLAIM_AFTER="1s") as worker:
            before = len(handled(shop))
            run_batch(query)
            shop.client.xreadgroup("g", f"gone-{first}", {"orders": ">"}, count=10)
            add(shop, range(first + 60, first + 80))
            if first % 160 == 1:
                eventually(lambda: len(handled(shop)) > before, "a result of the worker")  # noqa: B023
            worker.signal(signal.SIGKILL)
        match chance.choice(["planned", "logged", "read", "survives"]):
            case "planned":
                query.ask("latestOffset", query.start, query.reader.getDefaultReadLimit())
            case "logged":
                query.plan()
            case "read":
                run_batch(query)
            case _:
                continue
        query.kill()
        query = started()

    # And the query reads until nothing is left
    def settled() -> bool:
        run_batch(query)
        return not owners(shop, "orders") and not shop.client.xreadgroup(
            "g", "nobody", {"orders": ">"}, count=1
        )

    eventually(settled, "the settlement of all entries")
    query.stop()

    # Then every entry was read by the query or handled by a worker
    rows = [number for batch in sink.values() for number in batch]
    assert set(rows) | set(handled(shop)) == set(range(1, 801))
