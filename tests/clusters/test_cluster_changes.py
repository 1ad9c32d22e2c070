"""Messages that flow through a cluster while its shards change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headwater.worker import Stream
from tests.clusters.clusters import Cluster
from tests.clusters.flow import Flow, far, flowing, near
from tests.worker.apps import Invoice, eventually

pytestmark = [pytest.mark.clusters, pytest.mark.slow]


async def _kill(cluster: Cluster) -> None:
    """The stream's primary is gone without a word, and comes back as a replica."""
    owner = cluster.owner("orders")
    owner.kill()
    await eventually(lambda: cluster.owner("orders") is not owner)


async def _hand_over(cluster: Cluster) -> None:
    """An operator has a replica take over."""
    owner = cluster.owner("orders")
    await asyncio.to_thread(cluster.replica("orders").ask, "CLUSTER", "FAILOVER")
    await eventually(lambda: cluster.owner("orders") is not owner)


@pytest.mark.parametrize("change", [_kill, _hand_over])
async def test_nothing_confirmed_is_lost_when_a_shard_fails_over(
    cluster: Cluster, change: Callable[[Cluster], Awaitable[None]]
) -> None:
    # Given messages that a replica confirms
    async with flowing(cluster.name, cluster.url, wait=1) as flow:
        # When the stream's shard has another primary
        await change(cluster)
        for node in cluster.nodes:
            if node not in cluster.living():
                await asyncio.to_thread(cluster.restart, node)

        # Then the flow goes on, and nothing of it is lost
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
            """Some messages are sent between one key and the next."""
            asyncio.run_coroutine_threadsafe(_sent(flow, 200), loop).result()

        await asyncio.to_thread(cluster.move, "orders", between=some_more)
        await flow.more(500)


async def _sent(flow: Flow, count: int) -> None:
    sent = len(flow.sent)
    await eventually(lambda: len(flow.sent) > sent + count)
