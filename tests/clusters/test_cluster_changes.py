"""Messages flow through a cluster while its shards change."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Awaitable, Callable

import pytest

from headwater.client.aio.connect import connect
from headwater.worker import App, Stream
from tests.clusters.clusters import Cluster
from tests.clusters.flow import Flow, far, flowing, near, orders
from tests.worker.apps import Invoice, Order, eventually, working

pytestmark = [pytest.mark.clusters, pytest.mark.slow]


MANUAL_FAILOVER_SECONDS = 6.0
"""A replica gives up a manual failover after five seconds (cluster.c, CLUSTER_MF_TIMEOUT)."""


AHEAD_SECONDS = 0.2
"""The duration of the writes that are lost with their primary."""


async def kill(cluster: Cluster, key: str = "orders") -> None:
    """Kill the primary of a key and start it again as a replica."""
    await eventually(cluster.can_fail_over)
    owner = cluster.owner(key)
    owner.kill()
    await eventually(lambda: cluster.owner(key) is not owner)
    await asyncio.to_thread(cluster.restart, owner)


async def kill_ahead(cluster: Cluster, key: str = "orders") -> None:
    """Like `kill`, but the last writes are lost too: they did not reach the replica."""
    await eventually(cluster.can_fail_over)
    owner, replica = cluster.owner(key), cluster.replica(key)
    replica.peer.process.send_signal(signal.SIGSTOP)
    try:
        # Earlier writes are in the replica's socket. Later ones are not sent to it.
        owner.ask("CLIENT", "KILL", "TYPE", "replica")
        await asyncio.sleep(AHEAD_SECONDS)
        owner.kill()
    finally:
        replica.peer.process.send_signal(signal.SIGCONT)
    await eventually(lambda: cluster.owner(key) is not owner)
    await asyncio.to_thread(cluster.restart, owner)


async def hand_over(cluster: Cluster, key: str = "orders") -> None:
    """Make the replica of a key the primary, as an operator would."""
    await eventually(cluster.can_fail_over)
    owner = cluster.owner(key)
    # Repeated: the other primaries do not vote for two replicas of a shard within two node timeouts.
    requested_at = -math.inf
    while cluster.owner(key) is owner:
        if time.monotonic() - requested_at > MANUAL_FAILOVER_SECONDS:
            requested_at = time.monotonic()
            await asyncio.to_thread(cluster.replica(key).ask, "CLUSTER", "FAILOVER")
        await asyncio.sleep(0.02)  # nothing announces it


@pytest.mark.parametrize("change", [kill, kill_ahead, hand_over])
async def test_nothing_confirmed_is_lost_when_a_shard_fails_over(
    cluster: Cluster, change: Callable[[Cluster], Awaitable[None]]
) -> None:
    # Given messages that a replica confirms
    async with flowing(cluster.name, cluster.url, wait=1) as flow:
        # When the stream's shard gets another primary
        await change(cluster)

        # Then the flow continues, and no confirmed message is lost
        await flow.more(300)


@pytest.mark.parametrize("into", [near, far], ids=["same slot", "another slot"])
async def test_messages_flow_while_their_slot_moves(
    cluster: Cluster, into: Stream[Invoice]
) -> None:
    async with flowing(cluster.name, cluster.url, into=into) as flow:
        for _round in range(2):
            owner = cluster.owner("orders")
            await asyncio.to_thread(cluster.move, "orders")
            assert cluster.owner("orders") is not owner
            await flow.more(500)


async def test_messages_flow_while_their_slot_takes_long_to_move(cluster: Cluster) -> None:
    async with flowing(cluster.name, cluster.url) as flow:
        loop = asyncio.get_running_loop()

        def some_more() -> None:
            """Send some messages between one key and the next."""
            asyncio.run_coroutine_threadsafe(_sent(flow, 200), loop).result()

        await asyncio.to_thread(cluster.move, "orders", between=some_more)
        await flow.more(500)


async def _sent(flow: Flow, count: int) -> None:
    sent = len(flow.sent)
    await eventually(lambda: len(flow.sent) > sent + count)


async def test_an_idle_worker_follows_its_slot(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a worker that is blocked in a read
    app = App(cluster.url, name="test")
    handled: list[int] = []

    @app.consumer(orders, group="g", claim_after="1h")
    async def handle(order: Order) -> None:
        handled.append(order.id)

    async with working(app):
        await app.send(orders, Order(id=1))
        await eventually(lambda: handled == [1])
        owner = cluster.owner("orders")
        await eventually(lambda: b"cmd=xreadgroup" in owner.ask("CLIENT", "LIST"))

        # When the slot moves to another node and back
        for number in (2, 3):
            await asyncio.to_thread(cluster.move, "orders")
            await app.send(orders, Order(id=number))

            # Then the worker continues at the slot's new node
            await eventually(lambda: number in handled)  # noqa: B023
    assert handled == [1, 2, 3]

    # And it logs no warning
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == []


async def test_a_publisher_waits_until_a_shard_has_a_primary_again(cluster: Cluster) -> None:
    # Given a publisher with open connections
    app = App(cluster.url, name="test")
    streams = [Stream(f"s{n}", Order) for n in range(6)]
    async with app:
        for stream in streams:
            await app.send(stream, Order(id=1))

        # When a primary is killed
        owner = cluster.owner("s0")
        await asyncio.to_thread(owner.kill)

        # Then each later message arrives once, at any node
        for stream in streams:
            await app.send(stream, Order(id=2), dedupe="two")
        await asyncio.to_thread(app.publish, streams[0], Order(id=3), dedupe="three")
    async with connect(cluster.url) as look:
        assert [await look.xlen(stream.name) for stream in streams] == [3, 2, 2, 2, 2, 2]
