"""``headwater work`` keeps its workers working: when it starts them again, and when it gives up."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from tests.worker import shop
from tests.worker.apps import Store, eventually
from tests.worker.processes import quarantine_of, supervised, workers_of

pytestmark = pytest.mark.slow

SETTINGS_KEY = "{orders}:hw:group:g"


async def send(store: Store, *entries: shop.Order) -> None:
    for one in entries:
        await store.look.xadd("orders", dict(shop.orders.codec.encode(one)))


async def test_system_exit_in_a_handler_ends_no_worker(store: Store) -> None:
    # Given four workers, and a message whose handler calls sys.exit(0)
    with supervised(store.url, "--workers", "4", SHOP_MAX_DELIVERIES="4") as parent:
        await eventually(lambda: parent.said().count("reads orders as") == 4)
        workers = workers_of(parent.pid)
        await send(store, shop.Order(1, do="leave"), shop.Order(2))

        # When it has been delivered as often as it may, then it is a dead letter
        await eventually(store.settled)
        (letter,) = await store.dead()
        assert letter.error == "SystemExit: 0"

        # and all four workers live
        assert sorted(workers_of(parent.pid)) == sorted(workers)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0


async def test_a_worker_that_ends_unasked_with_status_0_is_started_again(store: Store) -> None:
    with supervised(store.url, "--workers", "1") as parent:
        await send(store, shop.Order(17, do="stop"))
        await eventually(store.settled)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0
        said = parent.said()
    assert "worker 0 ended with status 0; again in 0.5 s" in said
    assert [one.order for one in await store.results(shop.invoices)] == [17]


async def test_a_worker_whose_part_ended_says_which_and_is_started_again(store: Store) -> None:
    with supervised(store.url, "--workers", "1") as parent:
        await send(store, shop.Order(17, do="break"))
        await eventually(store.settled)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0
        said = parent.said()
    assert "orders/g settler of bill ended without having been stopped" in said
    assert "worker 0 ended with status 1; again in 0.5 s" in said


async def test_a_failed_join_stops_no_worker_of_a_group_that_was_joined_before(
    store: Store,
) -> None:
    # Given a worker of the group, which then dies
    with supervised(store.url, "--workers", "2") as parent:
        await eventually(lambda: parent.said().count("reads orders as") == 2)
        first, second = workers_of(parent.pid)
        await store.look.hset(SETTINGS_KEY, "claim_after_ms", "77000")
        os.kill(first, signal.SIGKILL)

        # When the one that takes its place is refused, then it is tried again
        await eventually(lambda: "worker 0 ended with status 78; again in" in parent.said())
        await eventually(lambda: "worker 1 ended" not in parent.said())

        # and the other one works on
        await send(store, shop.Order(17))
        await eventually(store.settled)
        assert second in workers_of(parent.pid)

        # and when the reason is gone, both work
        await store.look.hdel(SETTINGS_KEY, "claim_after_ms")
        await eventually(lambda: parent.said().count("reads orders as") == 3)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0


async def test_the_pause_before_a_restart_does_not_grow_while_workers_settle_entries(
    store: Store,
) -> None:
    # Given a worker that is killed again and again, after it has settled something each time
    with supervised(store.url, "--workers", "1") as parent:
        killed: list[int] = []
        for number in range(4):
            await send(store, shop.Order(number))
            await eventually(store.settled)
            (worker,) = workers_of(parent.pid)
            killed.append(worker)
            os.kill(worker, signal.SIGKILL)
            await eventually(lambda: parent.said().count("was ended by SIGKILL") == len(killed))

        # Then each time it is started again as soon as the first time
        pauses = re.findall(r"was ended by SIGKILL; again in ([\d.]+) s", parent.said())
        assert pauses == ["0.5"] * 4
        parent.signal(signal.SIGTERM)
        parent.wait()


async def test_the_pause_before_a_restart_grows_while_nothing_is_settled(store: Store) -> None:
    with supervised(store.url, "--workers", "1", SHOP_CLAIM_AFTER="10s") as parent:
        await send(store, *(shop.Order(number, do="kill") for number in range(3)))
        await eventually(lambda: parent.said().count("was ended by SIGKILL") == 1)
        await send(store, shop.Order(9, do="kill"))
        await eventually(lambda: parent.said().count("was ended by SIGKILL") == 2)
        pauses = re.findall(r"was ended by SIGKILL; again in ([\d.]+) s", parent.said())
        assert pauses == ["0.5", "1"]
        parent.signal(signal.SIGTERM)
        parent.wait()


async def test_a_worker_whose_dependency_fails_at_the_start_is_started_again(
    store: Store, tmp_path: Path
) -> None:
    # Given a database that is not there yet
    there = tmp_path / "there"
    with supervised(
        store.url, target="tests.worker.needy:app", NEEDY_WAITS_FOR=str(there)
    ) as parent:
        await eventually(lambda: "worker 0 ended with status 1; again in" in parent.said())
        assert "StartFailed: open_db failed at the start: FileNotFoundError" in parent.said()

        # When it is there, then the worker works
        there.touch()
        await store.look.xadd("orders", {"id": "17"})
        await eventually(store.settled)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0
        assert "closed the database" in parent.said()


async def test_a_signal_after_the_workers_have_ended_changes_no_exit_status(
    tmp_path: Path,
) -> None:
    # Given workers on a store that `headwater work` serves, and ends after them
    with supervised(f"headwater://{tmp_path}/data") as parent:
        await eventually(lambda: parent.said().count(" of group g") == 2)

        # When signals come as long as it lives, after the workers have stopped at the first
        parent.signal(signal.SIGTERM)
        await eventually(lambda: not workers_of(parent.pid) and not quarantine_of(parent.pid))
        while parent.process.poll() is None:
            parent.signal(signal.SIGTERM)
            await asyncio.sleep(0.001)

        # Then it ends as it would have
        assert parent.wait() == 0
