"""A query and worker processes in one group: every entry is handled, whichever process dies."""

from __future__ import annotations

import random
import signal
from typing import Any

import pytest

from tests.spark.members import GroupQuery, eventually, member_query, owners
from tests.spark.stores import Shop
from tests.worker.processes import WorkerProcess, one_worker

pytestmark = [pytest.mark.peer, pytest.mark.slow]

STORES = ("headwater", "redis-8.2")


def add(shop: Shop, numbers: range) -> None:
    """Add orders in the form that the workers' app and the query read."""
    pipeline = shop.client.pipeline(transaction=False)
    for number in numbers:
        pipeline.xadd("orders", {"id": number, "n": number, "do": "yield"}, id=f"{number}-1")
    pipeline.execute()


def handled(shop: Shop) -> list[int]:
    """Return what the workers have handled; each result is published together with its settlement."""
    results: Any = shop.client.xrange("invoices")
    return [int(fields[b"order"]) for _id, fields in results]


def test_each_entry_is_handled_by_one_of_them_if_none_dies(shop: Shop) -> None:
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
            eventually(lambda: handled(shop), "the worker handles its share")

        # When both have nothing left to read
        def everything() -> bool:
            rows.extend(query.read_all())
            return len(rows) + len(handled(shop)) >= 1000

        eventually(everything, "all entries are handled")

        # Then each was handled once
        assert sorted(rows + handled(shop)) == list(range(1, 1001))
        assert rows
        assert not query.plan()
        eventually(lambda: not owners(shop, "orders"), "all are settled")


@pytest.mark.parametrize("seed", [1, 2])
def test_no_entry_is_lost_if_consumers_workers_and_the_query_die(shop: Shop, seed: int) -> None:
    # Given killed workers, consumers that never settle, and a query that is killed too
    chance = random.Random(seed)
    log: list[Any] = []
    sink: dict[int, list[int]] = {}
    options = {"stream": "orders", "minIdleTime": "1s", "maxEntriesPerTrigger": "40"}

    def query() -> GroupQuery:
        found = GroupQuery(shop, log=log, **options)
        if log and len(log) not in sink:
            sink[len(log)] = found.read()
        return found

    def step(one: GroupQuery) -> None:
        if one.plan():
            sink[len(log)] = one.read()

    current = query()
    dead: list[WorkerProcess] = []
    for first in range(1, 801, 80):
        add(shop, range(first, first + 60))
        with one_worker(shop.url, SHOP_CLAIM_AFTER="1s") as worker:
            before = len(handled(shop))
            step(current)
            shop.client.xreadgroup("g", f"gone-{first}", {"orders": ">"}, count=10)
            add(shop, range(first + 60, first + 80))
            if first % 160 == 1:
                eventually(lambda: len(handled(shop)) > before, "the worker works")  # noqa: B023
            worker.signal(signal.SIGKILL)
            dead.append(worker)
        match chance.choice(["plan", "log", "read", "live"]):
            case "plan":
                current.ask("latestOffset", current.start, current.reader.getDefaultReadLimit())
            case "log":
                current.plan()
            case "read":
                step(current)
            case _:
                continue
        current.kill()
        current = query()

    # When the remaining ones have nothing left to read
    def settled() -> bool:
        step(current)
        return not owners(shop, "orders") and not shop.client.xreadgroup(
            "g", "nobody", {"orders": ">"}, count=1
        )

    eventually(settled, "all entries are settled")
    current.stop()

    # Then every entry was read by the query or handled by a worker
    rows = [number for batch in sink.values() for number in batch]
    assert set(rows) | set(handled(shop)) == set(range(1, 801))
