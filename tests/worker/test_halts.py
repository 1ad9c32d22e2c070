"""A worker that was suspended (SIGSTOP, a paused machine, a handler that holds the interpreter) does not
begin messages that other workers have claimed."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import redis.asyncio

from headwater.worker import App
from tests.worker.apps import Order, Store, eventually, orders, working
from tests.worker.processes import WorkerProcess, one_worker

SHOP = "tests.worker.halted_shop:app"

MESSAGES = 12

# An ordered reader notices the suspension by its leases or by its key, whichever it looks at first.
SUSPENDED = "this process was suspended"
NOTICES = {
    "each": SUSPENDED,
    "batch": SUSPENDED,
    "order": f"{SUSPENDED}|this process is no longer the reader",
}


def begun(worker: WorkerProcess) -> list[str]:
    """Numbers of the messages whose handlers have begun."""
    return re.findall(r"order (\d+) begins", worker.log())


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "at_a_time"), [("each", 2), ("batch", 2), ("order", 2)])
async def test_a_resumed_worker_begins_no_message_that_others_claimed(
    store: Store, tmp_path: Path, shape: str, at_a_time: int
) -> None:
    # Given a worker that runs some messages and owns more
    end = tmp_path / "end"
    options = {"target": SHOP, "SHOP_SHAPE": shape, "SHOP_END": str(end)}
    with one_worker(store.url, **options) as halted:
        for number in range(MESSAGES):
            await store.look.xadd("orders", {"id": number})
        await eventually(lambda: len(begun(halted)) == at_a_time)
        await eventually(lambda: _owned(store, MESSAGES))

        # When it is suspended, and another worker handles all of them
        halted.signal(signal.SIGSTOP)
        ran = begun(halted)
        end.touch()
        with one_worker(store.url, **options):
            await eventually(store.settled)

        # Then it begins none of them after it continues
        halted.signal(signal.SIGCONT)
        await store.look.xadd("orders", {"id": MESSAGES})
        await eventually(lambda: str(MESSAGES) in begun(halted))
        assert begun(halted)[len(ran) :] == [str(MESSAGES)]
        assert re.search(NOTICES[shape], halted.log())


@pytest.mark.slow
@pytest.mark.parametrize("store", ["headwater"], indirect=True)  # other stores end the read soon
@pytest.mark.parametrize("shape", ["each", "batch"])
async def test_a_resumed_worker_begins_no_message_that_was_delivered_meanwhile_and_claimed(
    store: Store, tmp_path: Path, shape: str
) -> None:
    # Given a worker that waits for messages and is suspended
    end = tmp_path / "end"
    end.touch()
    options = {"target": SHOP, "SHOP_SHAPE": shape, "SHOP_END": str(end)}
    with one_worker(store.url, **options) as halted:
        await store.look.xadd("orders", {"id": 0})
        await eventually(store.settled)
        await eventually(lambda: _waits(store))
        halted.signal(signal.SIGSTOP)

        # When the store delivers messages to it, and another worker handles them
        for number in range(1, MESSAGES):
            await store.look.xadd("orders", {"id": number})
        await eventually(store.pending)
        with one_worker(store.url, **options):
            await eventually(store.settled)

        # Then it begins none of them after it continues
        halted.signal(signal.SIGCONT)
        await store.look.xadd("orders", {"id": MESSAGES})
        await eventually(lambda: str(MESSAGES) in begun(halted))
        assert begun(halted) == ["0", str(MESSAGES)]


@pytest.mark.slow
async def test_a_worker_without_the_right_to_renew_handles_its_messages(
    headwater_url: str, store_url: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    # Given a user with every right except XRENEW, and more work than fits into claim_after
    async with redis.asyncio.Redis.from_url(store_url("headwater")) as look:
        await look.acl_setuser(
            "idler", True, nopass=True, keys=["*"], commands=["+@all", "-xrenew"]
        )
        app = App(headwater_url.replace("//", "//idler:any@"), name="test")
        handled: list[int] = []

        @app.consumer(orders, group="g", claim_after="300ms", concurrency=1, prefetch=6, retry=None)
        async def bill(order: Order) -> None:
            await asyncio.sleep(0.1)
            handled.append(order.id)

        # When the worker runs, then it handles everything, and logs that it cannot renew
        try:
            async with working(app):
                await orders.send_many([Order(number) for number in range(6)])
                await eventually(lambda: set(handled) == set(range(6)))
        finally:
            await look.acl_deluser("idler")
    assert "cannot be renewed: other workers may handle the same entries" in caplog.text


async def _waits(store: Store) -> bool:
    """Whether a worker's read blocks in the store."""
    return any(one["cmd"] == "xreadgroup" and "b" in one["flags"] for one in await _clients(store))


async def _clients(store: Store) -> list[dict[str, str]]:
    found: list[dict[str, str]] = await store.look.client_list()
    return found


async def _owned(store: Store, count: int) -> bool:
    return len(await store.pending()) == count
