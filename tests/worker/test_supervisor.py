"""``headwater work`` restarts its workers, with growing pauses, and exits when they cannot start."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from tests.worker import shop
from tests.worker.apps import Store, eventually, one_store
from tests.worker.processes import quarantine_of, supervised, workers_of

pytestmark = pytest.mark.slow

SETTINGS_KEY = "{orders}:hw:group:g"


async def send(store: Store, *entries: shop.Order) -> None:
    for one in entries:
        await store.look.xadd("orders", dict(shop.orders.codec.encode(one)))


@one_store
async def test_system_exit_in_a_handler_does_not_end_a_worker(store: Store) -> None:
    # Given four workers, and a message whose handler calls sys.exit(0)
    with supervised(store.url, "--workers", "4", SHOP_MAX_DELIVERIES="4") as parent:
        await eventually(lambda: parent.log().count("reads orders as") == 4)
        workers = workers_of(parent.pid)
        await send(store, shop.Order(1, do="leave"), shop.Order(2))

        # When it has used up its deliveries, then it is a dead letter
        await eventually(store.settled)
        (letter,) = await store.dead()
        assert letter.error == "SystemExit: 0"

        # And all four workers are running
        assert sorted(workers_of(parent.pid)) == sorted(workers)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0


@one_store
async def test_a_worker_that_ends_unexpectedly_with_status_0_is_restarted(store: Store) -> None:
    with supervised(store.url, "--workers", "1") as parent:
        await send(store, shop.Order(17, do="stop"))
        await eventually(store.settled)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0
        log = parent.log()
    assert "worker 0 ended with status 0; restarting in 0.5 s" in log
    assert [one.order for one in await store.results(shop.invoices)] == [17]


@one_store
async def test_a_worker_whose_task_ended_logs_its_name_and_is_restarted(store: Store) -> None:
    with supervised(store.url, "--workers", "1") as parent:
        await send(store, shop.Order(17, do="break"))
        await eventually(store.settled)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0
        log = parent.log()
    assert "orders/g settler of bill ended without having been stopped" in log
    assert "worker 0 ended with status 1; restarting in 0.5 s" in log


async def test_a_failed_join_does_not_stop_other_workers_of_the_group(
    store: Store,
) -> None:
    # Given two workers of a group, of which one dies
    with supervised(store.url, "--workers", "2") as parent:
        await eventually(lambda: parent.log().count("reads orders as") == 2)
        first, second = workers_of(parent.pid)
        await store.look.hset(SETTINGS_KEY, "claim_after_ms", "77000")
        os.kill(first, signal.SIGKILL)

        # When its replacement is refused, then it is retried
        await eventually(lambda: "worker 0 ended with status 78; restarting in" in parent.log())
        await eventually(lambda: "worker 1 ended" not in parent.log())

        # And the other worker continues
        await send(store, shop.Order(17))
        await eventually(store.settled)
        assert second in workers_of(parent.pid)

        # And when the cause is removed, both run
        await store.look.hdel(SETTINGS_KEY, "claim_after_ms")
        await eventually(lambda: parent.log().count("reads orders as") == 3)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0


@one_store
async def test_the_pause_before_a_restart_does_not_grow_while_workers_settle_entries(
    store: Store,
) -> None:
    # Given a worker that is killed several times, each time after it has settled entries
    with supervised(store.url, "--workers", "1") as parent:
        killed: list[int] = []
        for number in range(0, 8, 2):
            await send(store, shop.Order(number))
            await eventually(store.settled)
            # When the next one is settled too, the supervisor knows of the first
            await send(store, shop.Order(number + 1))
            await eventually(store.settled)
            (worker,) = workers_of(parent.pid)
            killed.append(worker)
            os.kill(worker, signal.SIGKILL)
            await eventually(lambda: parent.log().count("was ended by SIGKILL") == len(killed))

        # Then it is restarted with the first pause each time
        pauses = re.findall(r"was ended by SIGKILL; restarting in ([\d.]+) s", parent.log())
        assert pauses == ["0.5"] * 4
        parent.signal(signal.SIGTERM)
        parent.wait()


@one_store
async def test_the_pause_before_a_restart_grows_while_nothing_is_settled(store: Store) -> None:
    with supervised(store.url, "--workers", "1", SHOP_CLAIM_AFTER="10s") as parent:
        await send(store, *(shop.Order(number, do="kill") for number in range(3)))
        await eventually(lambda: parent.log().count("was ended by SIGKILL") == 1)
        await send(store, shop.Order(9, do="kill"))
        await eventually(lambda: parent.log().count("was ended by SIGKILL") == 2)
        pauses = re.findall(r"was ended by SIGKILL; restarting in ([\d.]+) s", parent.log())
        assert pauses == ["0.5", "1"]
        parent.signal(signal.SIGTERM)
        parent.wait()


@one_store
async def test_a_worker_whose_dependency_fails_at_the_start_is_restarted(
    store: Store, tmp_path: Path
) -> None:
    # Given a database that does not exist yet
    database = tmp_path / "database"
    with supervised(
        store.url, target="tests.worker.database_app:app", DATABASE_FILE=str(database)
    ) as parent:
        await eventually(lambda: "worker 0 ended with status 1; restarting in" in parent.log())
        assert "StartFailed: open_db failed at the start: FileNotFoundError" in parent.log()

        # When it exists, then the worker runs
        database.touch()
        await store.look.xadd("orders", {"id": "17"})
        await eventually(store.settled)
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0
        assert "closed the database" in parent.log()


async def test_a_signal_after_the_workers_have_ended_does_not_change_the_exit_status(
    tmp_path: Path,
) -> None:
    # Given workers on a store that `headwater work` serves, and stops after them
    with supervised(f"headwater://{tmp_path}/data") as parent:
        await eventually(lambda: " of group g" in parent.log())
        await eventually(lambda: parent.log().count("1 consumer on") == 2)

        # When signals arrive until it ends, after the workers have stopped at the first
        parent.signal(signal.SIGTERM)
        await eventually(lambda: not workers_of(parent.pid) and not quarantine_of(parent.pid))
        while parent.process.poll() is None:
            parent.signal(signal.SIGTERM)
            await asyncio.sleep(0.001)

        # Then its exit status does not change
        assert parent.wait() == 0
