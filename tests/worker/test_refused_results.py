"""A result that its stream can never take fails its own delivery, and holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import redis.asyncio

from headwater.groups.settling import Addition
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
async def own(request: pytest.FixtureRequest, peer: StartPeer) -> AsyncIterator[Store]:
    """A server that a test may configure."""
    async with _server(peer, request.param) as url, redis.asyncio.Redis.from_url(url) as look:
        yield Store(request.param, url, look)


@asynccontextmanager
async def _server(peer: StartPeer, name: str) -> AsyncIterator[str]:
    if name != "headwater":
        yield peer(name).url
        return
    with server_process("--appendonly", "no") as server:
        yield server.url


async def test_a_result_that_is_too_large_fails_its_delivery_and_no_other(own: Store) -> None:
    # Given a store that takes values of up to 1 MiB, and one result of three
    await own.look.config_set("proto-max-bulk-len", str(1024 * 1024))
    app = App(own.url, name="writer")

    @app.consumer(orders, into=letters, **OPTIONS)
    async def write(order: Order) -> Letter:
        return Letter(order.id, "x" * (3_000_000 if order.id == 7 else 10))

    # When it is handled among others
    for number in range(20):
        await own.look.xadd("orders", {"id": number})
    async with working(app):
        await eventually(own.settled)

    # Then those have their results, and it is a dead letter that says why
    (dead,) = await own.dead()
    assert (b"id", b"7") in dead.fields
    assert "result of 3000" in dead.error or "invalid bulk length" in dead.error
    assert dead.deliveries == 2
    found = await own.results(letters)
    assert sorted(one.order for one in found) == [n for n in range(20) if n != 7]


async def _restricted(own: Store) -> str:
    """The address of a user who may touch nothing but the stream orders and the keys beside it."""
    await own.look.execute_command(
        "ACL", "SETUSER", "worker", "on", ">secret", "+@all", "~orders", "~{orders}*"
    )
    return own.url.replace("redis://", "redis://worker:secret@")


async def test_a_result_that_may_not_be_written_fails_its_delivery_and_no_other(
    own: Store,
) -> None:
    app = App(await _restricted(own), name="stranger")

    @app.consumer(orders, into=invoices, **OPTIONS)
    async def bill(order: Order) -> Invoice | None:
        return Invoice(order.id) if order.id == 7 else None

    for number in range(20):
        await own.look.xadd("orders", {"id": number})
    async with working(app):
        await eventually(own.settled)

    (dead,) = await own.dead()
    assert (b"id", b"7") in dead.fields
    assert "NOPERM" in dead.error
    assert dead.deliveries == 2
    assert await own.look.exists("invoices") == 0


async def test_a_worker_that_is_denied_its_own_stream_for_a_while_uses_up_no_attempt(
    own: Store,
) -> None:
    # Given a handler that runs while an operator takes all keys from its user
    app = App(await _restricted(own), name="locked-out")
    counts: list[int] = []
    go_on = asyncio.Event()

    @app.consumer(orders, into=invoices, **OPTIONS)
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        counts.append(delivery.count)
        await go_on.wait()
        return Invoice(order.id)

    await own.look.execute_command("ACL", "SETUSER", "worker", "~invoices")
    await own.look.xadd("orders", {"id": "17"})
    async with working(app) as running:
        await eventually(lambda: counts)
        await own.look.execute_command("ACL", "SETUSER", "worker", "resetkeys")

        # When it returns, and the keys are given back later
        go_on.set()
        await eventually(elapsed(0.5))
        await own.look.execute_command(
            "ACL", "SETUSER", "worker", "~orders", "~{orders}*", "~invoices"
        )

        # Then its result is there, of the first delivery
        await eventually(own.settled)
        (loop,) = running.loops.values()
        assert not loop.failed.done()
    assert [one.order for one in await own.results()] == [17]
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
def test_a_wide_result_that_a_full_store_does_not_take_uses_up_no_attempt(
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
