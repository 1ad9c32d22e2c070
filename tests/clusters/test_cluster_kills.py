"""Worker processes are killed while they work on a cluster."""

from __future__ import annotations

import asyncio

import pytest

from headwater.client.aio.connect import connect
from tests.clusters.clusters import Cluster
from tests.clusters.test_cluster_changes import hand_over
from tests.worker.apps import Store
from tests.worker.kills import Campaign

pytestmark = [pytest.mark.clusters, pytest.mark.slow]


@pytest.mark.timeout(300)
async def test_killed_workers_lose_nothing_during_a_failover(cluster: Cluster) -> None:
    # Given workers that are killed and stopped at random points
    async with connect(cluster.url) as look:
        store = Store(cluster.name, cluster.url, look)
        running = asyncio.create_task(Campaign(store, points=30, seed=20261123).run())

        # When their stream's shard fails over meanwhile, and then its slot moves
        await asyncio.sleep(2)  # somewhere between the kills
        await hand_over(cluster)
        await asyncio.to_thread(cluster.move, "orders")

        # Then every message has a result. The results are in another slot, so some may have two
        report = await running
    assert (report["lost"], report["dead"]) == ([], 0), report
    assert report["results"] >= report["entries"] > 0
