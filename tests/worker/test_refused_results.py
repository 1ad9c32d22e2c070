"""A result that the store always refuses fails its own delivery and no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import redis.asyncio

from headwater.groups.settling.settling import Addition
from headwater.testing.server import server_process
from headwater.worker import App, Delivery, Stream
from tests import peers
from tests.worker.apps import Invoice, Order, Store, elapsed, eventually, invoices, orders, working
from tests.worker.core import Core
from tests.worker.outages import PEERS

pytestmark = pytest.mark.slow

StartPeer = Callable[..., peers.Peer]

EVERYWHERE = ("headwater", *PEERS)

OPTIONS: dict[str, Any] = {"group": "g", "claim_after": "20s", "retry": None, "max_deliveries": 2}


class Letter(msgspec.Struct):
    order: int
    text: str


letters: Stream[Letter] = Stream("letters", Letter)


@pytest.fixture(params=EVERYWHERE)
async def private_store(request: pytest.FixtureRequest, peer: StartPeer) -> AsyncIterator[Store]:
    """A server that the test can configure."""
    async with _server(peer, request.param) as url, redis.asyncio.Redis.from_url(url) as look:
        yield Store(request.param, url, look)


@asynccontextmanager
async def _server(peer: StartPeer, name: str) -> AsyncIterator[str]:
    if name != "headwater":
        yield peer(name).url
        return
    with server_process("--appendonly", "no", "--save", "") as server:
        yield server.url


async def test_a_result_that_is_too_large_fails_only_its_delivery(private_store: Store) -> None:
    # Given a store that accepts values of up to 1 MiB, and one larger result
    await private_store.look.config_set("proto-max-bulk-len", str(1024 * 1024))
    app = App(private_store.url, name="writer")

    @app.consumer(orders, into=letters, **OPTIONS)
    async def write(order: Order) -> Letter:
        return Letter(order.id, "x" * (3_000_000 if order.id == 7 else 10))

    # When it is handled among others
    for number in range(20):
        await private_store.look.xadd("orders", {"id": number})
    async with working(app):
        await eventually(private_store.settled)

    # Then the others have results, and the large one is a dead letter with the error
    (dead,) = await private_store.dead()
    assert (b"id", b"7") in dead.fields
    assert "result of 3000" in dead.error or "invalid bulk length" in dead.error
    assert dead.deliveries == 2
    found = await private_store.results(letters)
    assert sorted(one.order for one in found) == [n for n in range(20) if n != 7]


async def _restricted(private_store: Store) -> str:
    """The address of a user with rights to only the stream orders and the keys of its groups."""
    await private_store.look.execute_command(
        "ACL", "SETUSER", "worker", "on", ">secret", "+@all", "~orders", "~{orders}*"
    )
    return private_store.url.replace("redis://", "redis://worker:secret@")


async def test_a_result_for_a_stream_without_rights_fails_only_its_delivery(
    private_store: Store,
) -> None:
    app = App(await _restricted(private_store), name="stranger")

    @app.consumer(orders, into=invoices, **OPTIONS)
    async def bill(order: Order) -> Invoice | None:
        return Invoice(order.id) if order.id == 7 else None

    for number in range(20):
        await private_store.look.xadd("orders", {"id": number})
    async with working(app):
        await eventually(private_store.settled)

    (dead,) = await private_store.dead()
    assert (b"id", b"7") in dead.fields
    assert "NOPERM" in dead.error
    assert dead.deliveries == 2
    assert await private_store.look.exists("invoices") == 0


async def test_losing_the_rights_to_its_stream_for_a_while_uses_up_no_attempt(
    private_store: Store,
) -> None:
    # Given a handler that runs while its user loses the rights to all keys
    app = App(await _restricted(private_store), name="locked-out")
    counts: list[int] = []
    go_on = asyncio.Event()

    @app.consumer(orders, into=invoices, **OPTIONS)
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        counts.append(delivery.count)
        await go_on.wait()
        return Invoice(order.id)

    await private_store.look.execute_command("ACL", "SETUSER", "worker", "~invoices")
    await private_store.look.xadd("orders", {"id": "17"})
    async with working(app) as running:
        await eventually(lambda: counts)
        await private_store.look.execute_command("ACL", "SETUSER", "worker", "resetkeys")

        # When it returns, and the rights are restored later
        go_on.set()
        await eventually(elapsed(0.5))
        await private_store.look.execute_command(
            "ACL", "SETUSER", "worker", "~orders", "~{orders}*", "~invoices"
        )

        # Then its result is published, at the first delivery
        await eventually(private_store.settled)
        (loop,) = running.loops.values()
        assert not loop.failed.done()
    assert [one.order for one in await private_store.results()] == [17]
    assert counts == [1]


@pytest.mark.parametrize("pairs", [3_400, 3_600, 20_000])
def test_a_result_of_many_fields_is_published(core: Core, pairs: int) -> None:
    core.client.xadd("s", {"v": "a"})
    (entry,) = core.read()
    fields = [(b"f%d" % number, b"v") for number in range(pairs)]

    assert core.settle(entry, to=[Addition("wide", fields)]).done

    entries: Any = core.client.xrange("wide")
    ((_id, added),) = entries
    assert len(added) == pairs
    assert core.nothing_pending()


@pytest.mark.parametrize("name", PEERS)
def test_a_wide_result_refused_by_a_full_store_uses_up_no_attempt(
    peer: StartPeer, name: str
) -> None:
    core = Core.joined(peer(name).url)
    core.client.xadd("s", {"v": "a"})
    (entry,) = core.read()
    core.client.config_set("maxmemory", "1")

    outcome = core.settle(entry, to=[Addition("wide", [(b"f", b"v")] * 3_600)])

    assert outcome.error is not None
    assert outcome.error.code == "OOM"
    assert core.pending(entry.id) == ("one", 1)
    core.close()
