"""Clusters and Sentinels over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
import redis

import headwater
from tests.certificates import Certificates
from tests.clusters.clusters import Cluster, Sentinels
from tests.clusters.flow import far, flowing
from tests.clusters.test_cluster_changes import hand_over
from tests.clusters.test_sentinels import flowing_to_another_primary

pytestmark = [pytest.mark.clusters, pytest.mark.slow]


async def test_messages_flow_through_tls_while_a_cluster_changes(
    tls_cluster: Cluster, run_headwater: Callable[..., str]
) -> None:
    # Given a flow of messages with results at another node
    async with flowing(tls_cluster.name, tls_cluster.url, into=far) as flow:
        # When the slot of the stream moves, and its shard fails over
        owner = tls_cluster.owner("orders")
        await asyncio.to_thread(tls_cluster.move, "orders")
        assert tls_cluster.owner("orders") is not owner
        await hand_over(tls_cluster)

        # Then the flow continues, and the command line reaches the stream too
        await flow.more(300)
        printed = await asyncio.to_thread(
            run_headwater, "consumers", "list", "orders", "g", "--url", tls_cluster.url
        )
        assert "active" in printed

        # And no client has connected without TLS
        assert [node.plain_clients() for node in tls_cluster.nodes] == [[]] * 6


async def test_a_client_reaches_every_key_through_tls(tls_cluster: Cluster) -> None:
    keys = [f"s{n}" for n in range(9)]
    with headwater.connect(tls_cluster.url) as client:
        for key in keys:
            client.xadd(key, {"n": key})
    other_name = tls_cluster.url.replace("rediss+cluster", "valkeys+cluster")
    async with headwater.aio.connect(other_name) as client:
        assert [await client.xlen(key) for key in keys] == [1] * len(keys)
    assert [node.plain_clients() for node in tls_cluster.nodes] == [[]] * 6


def test_the_error_of_a_client_without_the_authority_names_the_certificate(
    tls_cluster: Cluster,
) -> None:
    url = tls_cluster.url.partition("?")[0]
    with headwater.connect(url, retry=None) as client:
        with pytest.raises(redis.ConnectionError, match="certificate"):
            client.xlen("orders")


async def test_an_error_of_a_single_node_client_names_the_cluster_address_for_tls(
    tls_cluster: Cluster, made: Certificates
) -> None:
    port = tls_cluster.other("orders").open_port
    address = rf"connect to rediss\+cluster://127.0.0.1:{port}$"
    url = f"rediss://127.0.0.1:{port}?{urlencode(made.client_options)}"
    with headwater.connect(url) as client:
        with pytest.raises(redis.exceptions.MovedError, match=address):
            client.xlen("orders")
    async with headwater.aio.connect(url) as client:
        with pytest.raises(redis.exceptions.MovedError, match=address):
            await client.xlen("orders")


async def test_workers_follow_the_primary_that_sentinels_name_through_tls(
    tls_sentinels: Sentinels,
) -> None:
    async def hand_over() -> None:
        await asyncio.to_thread(tls_sentinels.sentinels[0].ask, "SENTINEL", "FAILOVER", "shop")

    await flowing_to_another_primary(tls_sentinels, hand_over)
    everyone = [*tls_sentinels.servers, *tls_sentinels.sentinels]
    assert [server.plain_clients() for server in everyone] == [[]] * 6


async def test_a_client_reaches_the_primary_through_tls(tls_sentinels: Sentinels) -> None:
    with headwater.connect(tls_sentinels.url) as client:
        assert client.xadd("orders", {"id": "1"})
    other_name = tls_sentinels.url.replace("rediss+sentinel", "valkeys+sentinel")
    async with headwater.aio.connect(other_name) as client:
        assert await client.xlen("orders") == 1
    everyone = [*tls_sentinels.servers, *tls_sentinels.sentinels]
    assert [server.plain_clients() for server in everyone] == [[]] * 6
