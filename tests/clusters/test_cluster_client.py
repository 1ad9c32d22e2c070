"""`headwater.connect` to a cluster."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import redis.exceptions

import headwater
from headwater.client.attempts import may_have_run
from headwater.errors import ConfigError
from headwater.worker import Again, App, Dead, Delivery
from tests.clusters.clusters import Cluster, until
from tests.worker.apps import Invoice, Order, eventually, invoices, orders, working
from tests.worker.processes import ROOT

pytestmark = [pytest.mark.clusters, pytest.mark.slow]

KEYS = [f"s{n}" for n in range(9)]


def test_a_client_reaches_every_key(cluster: Cluster) -> None:
    with headwater.connect(cluster.url, decode_responses=True) as client:
        for key in KEYS:
            client.xadd(key, {"n": key})
        entries: Any = client.xread(dict.fromkeys(["{s}1", "{s}2"], "0"))
        assert not entries
        pipeline = client.pipeline(transaction=False)
        for key in KEYS:
            pipeline.xrange(key)
        found: Any = pipeline.execute()
    assert [rows[0][1]["n"] for rows in found] == KEYS


async def test_an_asyncio_client_reaches_every_key(cluster: Cluster) -> None:
    async with headwater.aio.connect(cluster.url, decode_responses=True) as client:
        await asyncio.gather(*(client.xadd(key, {"n": key}) for key in KEYS))
        pipeline = client.pipeline(transaction=False)
        for key in KEYS:
            pipeline.xrange(key)
        found: Any = await pipeline.execute()
        assert [rows[0][1]["n"] for rows in found] == KEYS


def test_threads_share_a_client(cluster: Cluster) -> None:
    with headwater.connect(cluster.url) as client:

        def add() -> None:
            for key in KEYS * 5:
                client.xadd(key, {"a": "1"})

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [client.xlen(key) for key in KEYS] == [20] * len(KEYS)


def test_commands_that_cannot_span_nodes_are_refused(cluster: Cluster) -> None:
    with headwater.connect(cluster.url) as client:
        for ask in (client.pipeline, client.pubsub, client.monitor):
            with pytest.raises(ConfigError, match="connect to one of its nodes"):
                ask()
        with pytest.raises(redis.exceptions.ResponseError, match="slot"):
            client.xread({"s0": "0", "s1": "0"})


def test_a_cluster_url_of_a_single_server_is_an_error(cluster: Cluster, peer: Any) -> None:
    server = peer(cluster.name)
    with headwater.connect(f"redis+cluster://127.0.0.1:{server.port}") as client:
        with pytest.raises(ConfigError, match="is not a node of a cluster"):
            client.xlen("orders")


def test_an_error_of_a_single_node_client_names_the_cluster_address(cluster: Cluster) -> None:
    # Given the client of a node that does not own a key
    node = cluster.other("orders")
    with headwater.connect(f"redis://127.0.0.1:{node.port}") as client:
        # Then each kind of request raises an error with the cluster's address
        with pytest.raises(redis.exceptions.MovedError, match="connect to ") as caught:
            client.xadd("orders", {"a": "1"})
        pipeline: Any = client.pipeline()
        with pytest.raises(redis.exceptions.MovedError, match="connect to "):
            pipeline.xlen("orders").execute()
    address = str(caught.value).rpartition(" ")[2]
    assert address == f"redis+cluster://127.0.0.1:{node.port}"

    # And a client of that address reaches the key
    with headwater.connect(address) as client:
        assert client.xadd("orders", {"a": "1"})


async def test_an_error_of_a_single_node_asyncio_client_names_the_cluster_address(
    cluster: Cluster,
) -> None:
    node = cluster.other("orders")
    address = rf"connect to redis\+cluster://127.0.0.1:{node.port}$"
    async with headwater.aio.connect(f"valkey://127.0.0.1:{node.port}") as client:
        with pytest.raises(redis.exceptions.MovedError, match=address):
            await client.xadd("orders", {"a": "1"})
        with pytest.raises(redis.exceptions.MovedError, match=address):
            await client.xread({"orders": "$"}, block=1)


async def test_an_error_of_a_single_node_client_says_that_a_slot_is_moving(
    cluster: Cluster,
) -> None:
    node = cluster.owner("orders")
    with headwater.connect(f"redis://127.0.0.1:{node.port}") as client:

        def ask() -> None:
            with pytest.raises(
                redis.exceptions.AskError, match=r"is moving to .*connect to redis\+c"
            ):
                client.xlen("orders")

        await asyncio.to_thread(cluster.move, "orders", between=ask)


async def test_reads_survive_a_failover_and_writes_are_not_repeated(cluster: Cluster) -> None:
    async with headwater.aio.connect(cluster.url) as client:
        # Given a write whose connection is lost before the reply arrives
        owner = cluster.owner("orders")
        first: Any = await client.xadd("orders", {"a": "1"})
        await asyncio.to_thread(until, lambda: owner.ask("WAIT", 1, 1_000), "it is replicated")
        ask: Any = client
        blocked = asyncio.create_task(ask.xread({"orders": first}, block=60_000))
        popped = asyncio.create_task(ask.blpop(["{orders}.list"], timeout=60))
        await eventually(lambda: b"blocked_clients:2" in owner.ask("INFO", "clients"))
        await asyncio.to_thread(owner.kill)

        # Then its error says that it may have run, and a read continues at the new primary
        with pytest.raises(redis.exceptions.ConnectionError) as caught:
            await popped
        assert may_have_run(caught.value)
        await eventually(lambda: cluster.owner("orders") is not owner)
        second: Any = await client.xadd("orders", {"a": "2"})
        found = await blocked
        assert second in str(found).encode()
        assert await client.xlen("orders") == 2


async def test_the_documented_permissions_suffice_on_every_node(cluster: Cluster) -> None:
    # Given a user with the permissions that the guide names, on every node
    text = (ROOT / "docs/guide/worker.md").read_text(encoding="utf-8")
    rules = text.partition("with these rights:\n\n```text\n")[2].partition("```")[0].split()
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "app", "reset", "on", ">secret", *rules)
    url = cluster.url.replace("redis+cluster://", "redis+cluster://app:secret@")
    handled: list[int] = []
    app = App(url, name="test")

    @app.consumer(orders, group="g", claim_after="200ms", into=invoices)
    async def handle(order: Order, delivery: Delivery) -> Invoice:
        if delivery.count == 1:
            raise Again(after="1s")
        if order.id == 2:
            raise Dead("no")
        handled.append(order.id)
        return Invoice(order=order.id)

    # When a worker runs as this user, then results, dead letters and dedupe work
    async with working(app):
        await app.send(orders, Order(id=1), wait=1)
        await app.send(orders, Order(id=2), dedupe="two")
        await eventually(lambda: handled == [1])
        await eventually(lambda: cluster.owner("orders").ask("XLEN", "{orders}.dead") == 1)
    for node in cluster.nodes:
        node.ask("ACL", "DELUSER", "app")
