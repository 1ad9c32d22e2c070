"""Workers behind three Sentinels, while the primary changes under load."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.exceptions

from headwater.client.aio.connect import connect
from headwater.client.sync.connect import connect as connect_synchronously
from headwater.errors import HeadwaterError, NotReplicated
from headwater.worker import App, Delivery, Stream
from tests.clusters.clusters import Sentinels, until
from tests.worker.apps import Invoice, Order, Store, eventually, working

pytestmark = [pytest.mark.clusters, pytest.mark.slow]

orders: Stream[Order] = Stream("orders", Order)
invoices: Stream[Invoice] = Stream("invoices", Invoice)


async def _kill(found: Sentinels) -> None:
    """Kill the primary."""
    found.primary().kill()


async def _hand_over(found: Sentinels) -> None:
    """Request a failover, as an operator would."""
    await asyncio.to_thread(found.sentinels[0].ask, "SENTINEL", "FAILOVER", "shop")


async def _hang(found: Sentinels) -> None:
    """Pause the primary and resume it after it was replaced."""
    before = found.primary()
    before.peer.process.send_signal(signal.SIGSTOP)
    try:
        await eventually(lambda: found.primary() is not before)
    finally:
        before.peer.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    "change", [pytest.param(_kill, marks=pytest.mark.slice), _hand_over, _hang]
)
async def test_all_parts_of_a_worker_follow_the_new_primary(
    sentinels: Sentinels, change: Callable[[Sentinels], Awaitable[None]]
) -> None:
    await flowing_to_another_primary(sentinels, lambda: change(sentinels))


async def flowing_to_another_primary(
    sentinels: Sentinels, change: Callable[[], Awaitable[None]]
) -> None:
    # Given a worker under load, and a publisher whose messages a replica confirms
    app = App(sentinels.url, name="test")
    handled: Counter[int] = Counter()

    @app.consumer(orders, group="g", into=invoices, lease="600ms", claim_after="3s", concurrency=8)
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        await asyncio.sleep(0.002)
        handled[order.id] += 1
        return Invoice(order=order.id)

    confirmed: list[int] = []
    stop = asyncio.Event()

    async def publish() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                await app.send(orders, Order(id=number), wait=1)
            except (HeadwaterError, redis.exceptions.RedisError):
                continue  # uncertain or not confirmed, so it may be lost
            confirmed.append(number)
            await asyncio.sleep(0.002)

    before = sentinels.primary()
    async with working(app):
        publishing = asyncio.create_task(publish())
        await eventually(lambda: len(confirmed) > 100)

        # When the primary changes
        await change()
        await eventually(lambda: sentinels.primary() is not before)

        # Then messages are confirmed and handled again
        sure = len(confirmed)
        await eventually(lambda: len(confirmed) > sure + 100)
        stop.set()
        await publishing
        await eventually(lambda: handled.keys() >= set(confirmed))
        async with connect(sentinels.url) as look:
            store = Store(sentinels.name, sentinels.url, look)
            await eventually(store.settled)
            assert (await look.info("server"))["tcp_port"] == sentinels.primary().port


async def test_the_answer_of_an_outdated_sentinel_is_checked(sentinels: Sentinels) -> None:
    # Given a Sentinel that was paused while the others chose another primary
    first = sentinels.sentinels[0]
    before = sentinels.primary()
    first.peer.process.send_signal(signal.SIGSTOP)
    sentinels.sentinels[1].ask("SENTINEL", "FAILOVER", "shop")
    others = sentinels.sentinels[1:]

    def chosen() -> bool:
        _host, port = others[1].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop")
        return bool(int(port) != before.port) and before.ask("ROLE")[0] == b"slave"

    until(chosen, "the others have another primary")

    # When a client queries that Sentinel first, then it still reaches the new primary
    with connect_synchronously(sentinels.url) as client:
        first.peer.process.send_signal(signal.SIGCONT)
        assert client.xadd("orders", {"id": "1"})
        info: Any = client.info("server")
        assert info["tcp_port"] != before.port


async def test_a_client_leaves_a_demoted_primary_after_its_first_refusal(
    sentinels: Sentinels,
) -> None:
    # Given a client whose primary became a replica without closing its connections
    async with connect(sentinels.url) as client:
        await client.xadd("orders", {"id": "1"})
        before = sentinels.primary()
        replica = next(one for one in sentinels.servers if one is not before)
        for sentinel in sentinels.sentinels:
            sentinel.ask("SENTINEL", "REMOVE", "shop")
        before.ask("REPLICAOF", "127.0.0.1", replica.port)
        replica.ask("REPLICAOF", "NO", "ONE")
        with pytest.raises(redis.exceptions.ReadOnlyError):
            await client.xadd("orders", {"id": "2"})

        # When the Sentinels know the new primary, then the next command goes there
        for sentinel in sentinels.sentinels:
            sentinel.ask("SENTINEL", "MONITOR", "shop", "127.0.0.1", replica.port, 2)
        await client.xadd("orders", {"id": "2"})
        info: Any = await client.info("server")
        assert info["tcp_port"] == replica.port


async def test_unconfirmed_replication_is_an_error(sentinels: Sentinels) -> None:
    app = App(sentinels.url, name="test")
    async with app:
        with pytest.raises(NotReplicated):
            await app.send(orders, Order(id=1), wait=3)
