"""Workers on a cluster of three shards with one replica each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.client.aio.connect import connect
from headwater.client.routing import SlotMoved
from headwater.worker import Again, App, Backoff, Dead, Delivery, Stream, Tick
from headwater.worker.store.connections import Connections
from tests.clusters.clusters import Cluster
from tests.worker.apps import (
    Invoice,
    Order,
    Store,
    buried,
    elapsed,
    eventually,
    killed,
    worker,
    working,
)

pytestmark = [pytest.mark.clusters, pytest.mark.slow]

orders: Stream[Order] = Stream("orders", Order)
near: Stream[Invoice] = Stream("{orders}.invoices", Invoice)
far: Stream[Invoice] = Stream("invoices", Invoice)
"""In another slot than ``orders``."""


@pytest.fixture
async def store(cluster: Cluster) -> Any:
    async with connect(cluster.url) as look:
        yield Store(cluster.name, cluster.url, look)


@pytest.mark.parametrize("into", [near, far], ids=["same slot", "another slot"])
async def test_a_worker_handles_messages_and_publishes_results(
    store: Store, into: Stream[Invoice]
) -> None:
    # Given a consumer with results
    app = store.app()

    @app.consumer(orders, group="g", into=into)
    async def bill(order: Order) -> Invoice:
        return Invoice(order=order.id)

    # When a hundred messages are sent
    async with working(app):
        await orders.send_many([Order(id=n) for n in range(100)])
        await eventually(store.settled)

    # Then each has a result
    assert sorted(one.order for one in await store.results(into)) == list(range(100))


@pytest.mark.parametrize("own", [True, False], ids=["its node", "another node"])
@pytest.mark.parametrize("into", [near, far], ids=["same slot", "another slot"])
async def test_a_worker_needs_the_address_of_only_one_node(
    store: Store, cluster: Cluster, into: Stream[Invoice], own: bool
) -> None:
    # Given an app with the address of a single node
    node = cluster.owner("orders") if own else cluster.other("orders")
    app = App(node.peer.url, name="test")

    @app.consumer(orders, group="g", into=into)
    async def bill(order: Order) -> Invoice:
        return Invoice(order=order.id)

    # When its worker runs
    async with working(app):
        await orders.send_many([Order(id=n) for n in range(20)])
        await eventually(store.settled)

    # Then it handles all messages, as with the cluster's address
    assert sorted(one.order for one in await store.results(into)) == list(range(20))
    assert await store.dead() == []


async def test_the_entries_of_a_killed_worker_are_claimed(store: Store) -> None:
    # Given a worker that was killed while it was handling ten messages
    begun: list[int] = []
    first, second = store.app(), store.app()

    @first.consumer(orders, group="g", claim_after="300ms", concurrency=10)
    async def hang(order: Order) -> None:
        begun.append(order.id)
        await asyncio.Event().wait()

    handled: list[tuple[int, int]] = []

    @second.consumer(orders, group="g", claim_after="300ms")
    async def handle(order: Order, delivery: Delivery) -> None:
        handled.append((order.id, delivery.count))

    running = worker(first)
    running.start()
    async with second:
        await second.send_many(orders, [Order(id=n) for n in range(10)])
    await eventually(lambda: len(begun) == 10)
    killed(running)

    # When another worker runs
    async with working(second):
        await eventually(store.settled)

    # Then it handles them, as their second delivery
    assert sorted(handled) == [(n, 2) for n in range(10)]
    await buried(running)


async def test_retries_wait_and_dead_letters_are_written(store: Store) -> None:
    app = store.app()
    counts: dict[int, list[int]] = {}

    @app.consumer(
        orders, group="g", claim_after="100ms", retry=Backoff("10ms", factor=1), max_deliveries=3
    )
    async def handle(order: Order, delivery: Delivery) -> None:
        counts.setdefault(order.id, []).append(delivery.count)
        if order.id == 1:
            raise Dead("unknown")
        if order.id == 2:
            raise ValueError("always")
        if order.id in (3, 4) and delivery.count == 1:
            raise Again(after="50ms" if order.id == 3 else "400ms")

    async with working(app):
        await orders.send_many([Order(id=n) for n in range(6)])
        await eventually(store.settled)

    assert counts == {0: [1], 1: [1], 2: [1, 2, 3], 3: [1, 2], 4: [1, 2], 5: [1]}
    dead = await store.dead()
    assert sorted(letter.deliveries for letter in dead) == [1, 3]


async def test_a_dead_letter_is_replayed_from_the_command_line(
    store: Store, run_headwater: Callable[..., str]
) -> None:
    # Given a dead letter
    app = store.app()
    lenient = False
    handled: list[int] = []

    @app.consumer(orders, group="g")
    async def handle(order: Order) -> None:
        if not lenient:
            raise Dead("no")
        handled.append(order.id)

    async with working(app):
        await orders.send(Order(id=7))
        (letter,) = await eventually(store.dead)

    # When it is replayed
    def run(*words: str) -> str:
        return run_headwater(*words, "--url", store.url)

    assert letter.id in run("dead", "list", "orders")
    run("dead", "replay", "orders", letter.id)

    # Then its group gets it again, and the commands show the group
    assert await store.dead() == []
    assert "claimable" in run("pending", "list", "orders")
    lenient = True
    async with working(app):
        await eventually(lambda: handled == [7])
        await eventually(store.settled)
        assert "active" in run("consumers", "list", "orders", "g")
    assert "[]" in run("consumers", "reap", "orders", "g", "--yes", "-o", "json")


async def test_a_dead_letter_of_another_slot_is_replayed_too(
    store: Store, run_headwater: Callable[..., str]
) -> None:
    # Given a dead-letter stream in another slot than its stream
    app = store.app()
    lenient = False
    handled: list[int] = []

    @app.consumer(orders, group="g", dead="graveyard")
    async def handle(order: Order) -> None:
        if not lenient:
            raise Dead("no")
        handled.append(order.id)

    async with working(app):
        await orders.send(Order(id=7))
        await eventually(lambda: store.look.xlen("graveyard"))

    # When all of its dead letters are replayed
    words = ("dead", "replay", "orders", "--all", "--from", "graveyard", "--url", store.url)
    run_headwater(*words)
    lenient = True

    # Then its group gets it again
    async with working(app):
        await eventually(lambda: handled == [7])
    assert await store.look.xlen("graveyard") == 0


async def test_every_way_to_publish_reaches_the_right_node(store: Store) -> None:
    app = store.app()
    streams = [Stream(f"s{n}", Order) for n in range(8)]
    async with app:
        # Concurrently, to streams on all nodes
        sent = await asyncio.gather(
            *(app.send(stream, Order(id=n)) for n, stream in enumerate(streams))
        )
        once = {await app.send(orders, Order(id=1), dedupe="key") for _ in range(2)}
        replicated = await app.send(orders, Order(id=2), wait=1)
        threaded = await asyncio.to_thread(app.publish, orders, Order(id=3))
        threaded_once = await asyncio.to_thread(app.publish, orders, Order(id=1), dedupe="key")
    assert len(set(sent)) >= 1
    for stream in streams:
        assert await store.look.xlen(stream.name) == 1
    assert once == {threaded_once}
    entries: Any = await store.look.xrange("orders")
    ids = [entry_id.decode() for entry_id, _fields in entries]
    assert ids == [*once, replicated, threaded]


async def test_a_blocked_read_is_unblocked_on_its_own_node(store: Store, cluster: Cluster) -> None:
    # Given a worker that is blocked in a read
    app = store.app()

    @app.consumer(orders, group="g", claim_after="1h")
    async def handle(order: Order) -> None: ...

    owner = cluster.owner("orders")
    owner.ask("CONFIG", "RESETSTAT")
    async with working(app):
        await eventually(lambda: b"cmd=xreadgroup" in owner.ask("CLIENT", "LIST"))
        await eventually(elapsed(0.1))  # the first reads are short, between the steps of a sweep

    # When it stops, then CLIENT UNBLOCK ended the read
    assert b"cmdstat_client|unblock" in owner.ask("INFO", "commandstats")
    assert await store.consumers() == []


async def test_a_dedicated_connection_is_reopened_when_its_server_turns_out_to_be_a_node(
    cluster: Cluster,
) -> None:
    # Given a dedicated connection to one node, whose client id a worker knows
    owner = cluster.owner("orders")
    other = next(name for name in "abcdefgh" if cluster.owner(name) is not owner)
    connections = Connections(owner.peer.url)
    async with connections.reading(home="orders") as reading, connections.asynchronous() as rest:
        assert await reading.client_id()

        # When another connection of the process is redirected to another node
        assert await rest.xlen(other) == 0

        # Then later commands would use another connection, so the dedicated one raises SlotMoved
        with pytest.raises(SlotMoved, match="node of a cluster"):
            await reading.xlen("orders")
    async with connections.reading(home="orders") as reading:
        assert await reading.xlen("orders") == 0


async def test_a_dedicated_connection_is_reopened_when_its_node_redirects(
    cluster: Cluster,
) -> None:
    connections = Connections(cluster.other("orders").peer.url)
    async with connections.reading(home="orders") as reading:
        with pytest.raises(SlotMoved):
            await reading.xlen("orders")
    async with connections.reading(home="orders") as reading:
        assert await reading.xlen("orders") == 0


async def test_consumers_of_streams_on_different_nodes_share_a_process(store: Store) -> None:
    app = store.app()
    streams = [Stream(f"s{n}", Order) for n in range(6)]
    handled: set[tuple[str, int]] = set()

    def handler(name: str) -> Callable[[Order], Awaitable[None]]:
        async def handle(order: Order) -> None:
            handled.add((name, order.id))

        return handle

    for stream in streams:
        app.consumer(stream, group="g")(handler(stream.name))

    async with working(app):
        for stream in streams:
            await app.send_many(stream, [Order(id=n) for n in range(10)])
        await eventually(lambda: len(handled) == 60)


async def test_named_and_delayed_messages_of_many_partitions_are_confirmed_and_published(
    store: Store,
) -> None:
    # Given a stream whose partitions are on all shards, and a function that is called at an interval
    app = store.app()
    moves: Stream[Order] = Stream("moves", Order, partitions=6, key=lambda order: order.id)
    handled: list[int] = []
    times: list[float] = []

    @app.consumer(moves, group="g")
    async def move(order: Order) -> None:
        handled.append(order.id)

    @app.every("200ms")
    async def sweep(tick: Tick) -> None:
        times.append(tick.time.timestamp())

    many = [Order(id=n) for n in range(300)]
    async with working(app):
        # When messages are sent twice, and others for later
        once = await moves.send_many(many, dedupe=lambda order: f"order-{order.id}", wait=1)
        again = await moves.send_many(many, dedupe=lambda order: f"order-{order.id}")
        later = await moves.send_many(
            [Order(id=n) for n in range(300, 600)], after="300ms", dedupe=lambda one: f"{one.id}"
        )
        assert once == again
        assert len({(one.stream, one.id) for one in later}) == 300
        await eventually(lambda: len(handled) >= 600)
        await eventually(lambda: len(times) >= 2)

    # Then each is handled once
    assert sorted(handled) == list(range(600))
    assert len(set(times)) == len(times)
