"""Workers wait while a store refuses commands, does not reply or is down, and lose no attempt and no result."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio

from headwater.groups.protocol.operation import Refused, perform, single
from headwater.testing.server import server_process
from headwater.worker import App, Delivery
from tests import peers
from tests.worker.apps import (
    Invoice,
    Order,
    Store,
    elapsed,
    eventually,
    invoices,
    orders,
    working,
)
from tests.worker.outages import OUTAGES, PEERS, Outage
from tests.worker.processes import supervised
from tests.worker.proxy import proxy

pytestmark = pytest.mark.slow

StartPeer = Callable[..., peers.Peer]

LONG_LEASE: dict[str, Any] = {"group": "g", "claim_after": "20s"}
"""Options of a consumer whose lease is so long that nothing is claimed while the store refuses renewals."""


@asynccontextmanager
async def store_of(server: peers.Peer) -> AsyncIterator[Store]:
    async with redis.asyncio.Redis.from_url(server.url) as look:
        yield Store(server.name, server.url, look)


class Biller:
    """An app whose handler waits for ``go_on``. ``counts`` has the delivery count of each call."""

    def __init__(self, url: str, **options: Any) -> None:
        self.app = App(url, name="biller")
        self.counts: list[int] = []
        self.go_on = asyncio.Event()

        @self.app.consumer(orders, into=invoices, **{**LONG_LEASE, **options})
        async def bill(order: Order, delivery: Delivery) -> Invoice:
            self.counts.append(delivery.count)
            await self.go_on.wait()
            return Invoice(order.id)


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("outage", OUTAGES, ids=str)
async def test_workers_wait_while_a_store_refuses_commands_and_use_up_no_attempt(
    peer: StartPeer, name: str, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a worker with a running handler, and a store that begins to refuse commands
    server = peer(name)
    one, two = Biller(server.url), Biller(server.url)
    async with store_of(server) as store, working(one.app) as first:
        await one.app.send(orders, Order(17))
        await eventually(lambda: one.counts)
        await outage.begin(store.look, server.directory)
        assert outage.code in await _codes(store)

        # When the handler returns, and a second worker starts meanwhile
        one.go_on.set()
        two.go_on.set()
        async with working(two.app) as second:
            await eventually(elapsed(0.3))
            (loop,), (other,) = first.loops.values(), second.loops.values()
            assert not loop.failed.done()
            assert not other.failed.done()
            await outage.end(store.look, server.directory)

            # Then each message is handled once, at the first delivery
            await eventually(store.settled)
            await eventually(lambda: other.fetcher.joined)
            await store.look.xadd("orders", {"id": "18"})
            await eventually(store.settled)
        results = [invoice.order for invoice in await store.results()]
    assert sorted(results) == [17, 18]
    assert one.counts + two.counts == [1, 1]
    assert caplog.text.count("trying again until") <= 6  # not one for each attempt


async def _codes(store: Store) -> list[str]:
    """The error codes of the store's replies to a write and to a read."""
    codes = []
    for command in (("XADD", "elsewhere", "*", "a", "b"), ("XLEN", "elsewhere")):
        try:
            await perform(store.look, single(*command))
        except Refused as error:
            codes.append(error.code)
    return codes


@pytest.mark.parametrize("name", PEERS)
async def test_workers_wait_while_a_store_loads_its_data(
    peer: StartPeer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a worker with a running handler, and a store that reloads its file for a second
    interval = ("--loading-process-events-interval-bytes", "1024")
    server = peer(name, "--enable-debug-command", "yes", *interval)
    one, two = Biller(server.url), Biller(server.url)
    async with store_of(server) as store, working(one.app):
        await one.app.send(orders, Order(17))
        await eventually(lambda: one.counts)
        await store.look.mset({f"key{number}": "x" * 1_000 for number in range(200)})
        await store.look.config_set("key-load-delay", "5000")
        loading = asyncio.create_task(perform(store.look, single("DEBUG", "RELOAD")))
        await eventually(elapsed(0.1))

        # When the handler returns and a second worker starts, then both wait for the store
        one.go_on.set()
        two.go_on.set()
        async with working(two.app) as second:
            (loop,) = second.loops.values()
            await loading
            await eventually(store.settled)
            await eventually(lambda: loop.fetcher.joined)
            assert not loop.failed.done()
        results = [invoice.order for invoice in await store.results()]
    assert results == [17]
    assert one.counts + two.counts == [1]
    assert "loading the dataset in memory" in caplog.text


@pytest.mark.parametrize("name", PEERS)
async def test_an_outage_stops_neither_a_running_worker_nor_one_that_starts(
    peer: StartPeer, name: str
) -> None:
    # Given a running worker
    server = peer(name)
    async with store_of(server) as store:
        with supervised(server.url, "--workers", "1") as parent:
            await eventually(lambda: "reads orders as" in parent.log())

            # When the store refuses writes while another worker starts
            await store.look.config_set("min-replicas-to-write", "1")
            with supervised(server.url, "--workers", "1") as late:
                await eventually(lambda: "NOREPLICAS" in late.log())
                await store.look.config_set("min-replicas-to-write", "0")

                # Then both run after the outage
                await eventually(lambda: "reads orders as" in late.log())
                assert late.process.poll() is None
            assert parent.process.poll() is None


@pytest.mark.parametrize("name", ["headwater", *PEERS])
async def test_a_worker_waits_while_its_password_is_wrong(peer: StartPeer, name: str) -> None:
    async with _server(peer, name) as url, redis.asyncio.Redis.from_url(url) as look:
        # Given a worker that has joined with its password
        await look.config_set("requirepass", "right")
        await look.auth("right")
        biller = Biller(url.replace("redis://", "redis://:right@"))
        biller.go_on.set()
        async with working(biller.app) as running:
            (loop,) = running.loops.values()
            await eventually(lambda: loop.fetcher.joined)

            # When the store has another password for a while, and the worker must reconnect
            await look.config_set("requirepass", "wrong")
            await look.client_kill_filter(_type="normal", skipme=True)
            await eventually(elapsed(0.3))
            assert not loop.failed.done()
            await look.config_set("requirepass", "right")

            # Then it continues
            await look.xadd("orders", {"id": "17"})
            await eventually(lambda: biller.counts == [1])


@asynccontextmanager
async def _server(peer: StartPeer, name: str) -> AsyncIterator[str]:
    if name != "headwater":
        yield peer(name).url
        return
    with server_process("--appendonly", "no", "--save", "") as server:
        yield server.url


@pytest.mark.parametrize("name", PEERS)
async def test_after_a_failover_the_settler_and_lease_renewer_follow_the_reader(
    peer: StartPeer, name: str
) -> None:
    # Given a worker whose address leads to a primary, and a replica of that primary
    primary, replica = peer(name), peer(name)
    async with (
        proxy(primary.url) as address,
        redis.asyncio.Redis.from_url(primary.url) as old,
        store_of(replica) as store,
    ):
        await store.look.replicaof("127.0.0.1", str(primary.port))
        biller = Biller(address.url, claim_after="1s")
        async with working(biller.app) as running:
            await biller.app.send(orders, Order(17))
            await eventually(lambda: biller.counts)
            await eventually(lambda: _owns_one(store))

            # When the replica is promoted, the primary demoted, and the address leads to the new primary
            await store.look.replicaof("NO", "ONE")
            await old.replicaof("127.0.0.1", "1")
            address.target = replica.url
            since = time.monotonic()

            # Then leases are renewed there, and the result is published there
            await eventually(lambda: _renewed(store, since))
            biller.go_on.set()
            await eventually(store.settled)
            (loop,) = running.loops.values()
            await eventually(lambda: not loop.in_flight.owned)
        assert [invoice.order for invoice in await store.results()] == [17]
    assert biller.counts == [1]


async def _renewed(store: Store, since: float) -> bool:
    """Whether the entry's lease was renewed after that time."""
    ((_id, _owner, idle, _count),) = await store.pending()
    return bool(idle < (time.monotonic() - since) * 1_000)


async def _owns_one(store: Store) -> bool:
    return len(await store.pending()) == 1


async def test_connections_that_stop_replying_are_replaced(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a worker with a running handler, whose connections stop replying without closing
    async with proxy(store.url) as address:
        biller = Biller(address.url, claim_after="6s")
        async with working(biller.app) as running:
            (loop,) = running.loops.values()
            await store.look.xadd("orders", {"id": "17"})
            await eventually(lambda: biller.counts)
            address.fall_silent()
            biller.go_on.set()

            # When two renewals have failed, then the log says so
            await eventually(lambda: "no lease of orders/g was renewed for" in caplog.text)
            address.forget()

            # And the worker settles and reads over new connections
            await eventually(store.settled)
            await eventually(lambda: not loop.in_flight.owned)
            await store.look.xadd("orders", {"id": "18"})
            await eventually(lambda: biller.counts == [1, 1])


async def test_the_pauses_of_the_reader_are_reset_after_a_successful_read(store: Store) -> None:
    # Given a worker whose connections break after every message
    async with proxy(store.url) as address:
        biller = Biller(address.url)
        biller.go_on.set()
        async with working(biller.app) as running:
            for number in range(8):
                await store.look.xadd("orders", {"id": str(number)})
                await eventually(lambda: len(biller.counts) == number + 1)  # noqa: B023
                await eventually(store.settled)
                address.cut()

    # Then the next pause is a short one
    (fetcher,) = [one.fetcher for one in running.loops.values()]
    assert fetcher.pause.next() < 1.0
    assert biller.counts == [1] * 8


async def test_an_outage_is_logged_once_when_it_begins_and_once_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a worker with a running handler
    with server_process("--appendonly", "yes") as server:
        biller = Biller(server.url)
        async with working(biller.app) as running:
            (loop,) = running.loops.values()
            await biller.app.send(orders, Order(17))
            await eventually(lambda: biller.counts)

            # When the store is killed and started again
            server.kill()
            biller.go_on.set()
            await eventually(elapsed(1.0))
            await asyncio.to_thread(server.start)  # the worker goes on meanwhile
            await eventually(lambda: not loop.in_flight.owned)
            await eventually(lambda: "answers again after" in caplog.text)

    # Then these two warnings are all
    lines = [one.message for one in caplog.records if one.levelno >= logging.WARNING]
    assert [line for line in lines if "does not answer" in line] == lines[:1]
    assert [line for line in lines if "answers again after" in line] == lines[1:]
