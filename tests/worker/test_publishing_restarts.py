"""Publishing while the store restarts: messages that were not sent are sent later, messages that may have
been added are not sent twice, and the error says which of the two happened."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from headwater.errors import NotSent, OutcomeUnknown
from headwater.worker import App, Stream
from headwater.worker.publish import publishing
from tests import peers
from tests.worker.apps import Order, eventually
from tests.worker.restarts import Restarting, restarting

pytestmark = pytest.mark.slow

PEERS = ("redis-8.2", "redis-7.0", "valkey-9.1")
SERVERS = ("headwater", *PEERS)

orders: Stream[Order] = Stream("orders", Order)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Restarting]:
    """A server for one test, of each kind in turn."""
    try:
        with restarting(request.param) as found:
            yield found
            assert found.alarms() == []
    except peers.PeerMissing as missing:
        if peers.required():
            raise
        pytest.skip(str(missing))


async def test_send_waits_while_the_store_restarts(server: Restarting) -> None:
    # Given an app that has sent a message, and a killed store
    app = App(server.url)
    async with app:
        await app.send(orders, Order(1))
        server.kill()

        # When the store is started again while messages are sent
        with server.starting():
            ids = await app.send_many(orders, [Order(number) for number in range(2, 5)])

    # Then each is added once
    with server.look() as look:
        assert [entry_id for entry_id, _fields in look.xrange("orders")][-3:] == ids
        assert look.xlen("orders") == 4


def test_publish_waits_while_the_store_restarts(server: Restarting) -> None:
    app = App(server.url)
    with app:
        app.publish(orders, Order(1))
        server.kill()
        with server.starting():
            app.publish(orders, Order(2))
    with server.look() as look:
        assert look.xlen("orders") == 2


@pytest.mark.parametrize("server", PEERS, indirect=True)
async def test_many_messages_wait_while_the_store_loads_its_data(
    server: Restarting, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an app that was quiet for a while, and a store that takes long to load its data
    monkeypatch.setattr(publishing, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(publishing, "RECONNECT_SECONDS", 30.0)
    app = App(server.url)
    async with app:
        await app.send_many(orders, [Order(number) for number in range(5_000)])
        server.kill()
        server.arguments = ("--key-load-delay", "500")
        with server.starting():
            await eventually(lambda: _is_loading(server))

            # When messages are sent while the store replies LOADING
            ids = await app.send_many(orders, [Order(number) for number in range(10)])

    # Then they are added once it has loaded
    with server.look() as look:
        assert look.xlen("orders") == 5_010
        assert look.xrevrange("orders", count=1)[0][0] == ids[-1]


def _is_loading(server: Restarting) -> bool:
    port = urlsplit(server.url).port
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"-LOADING")
    except OSError:
        return False


async def test_messages_that_were_not_sent_raise_not_sent(
    server: Restarting, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a store that does not return within the time that sending waits
    monkeypatch.setattr(publishing, "RECONNECT_SECONDS", 0.1)
    app = App(server.url)
    async with app:
        await app.send(orders, Order(1))
        server.kill()

        # Then both ways to publish raise NotSent
        with pytest.raises(NotSent, match="2 messages for 'orders' could not be sent"):
            await app.send_many(orders, [Order(2), Order(3)])
        with pytest.raises(NotSent, match="adds nothing twice") as raised:
            await asyncio.to_thread(app.publish, orders, Order(4))
        assert raised.value.added == []


async def test_messages_that_may_have_been_added_raise_outcome_unknown(server: Restarting) -> None:
    # Given a store that dies after it has read the messages and before it replies
    app = App(server.url)
    async with app:
        await app.send(orders, Order(0))
        with server.look() as look:
            look.client_pause(60_000, all=False)
            sending = asyncio.ensure_future(app.send_many(orders, [Order(1), Order(2)]))
            await eventually(lambda: _blocked(look))
        server.kill()

        # Then the error says that they may have been added, and how many
        with pytest.raises(OutcomeUnknown, match="the outcome is unknown") as raised:
            await sending
        assert (raised.value.added, raised.value.unknown) == ([], 2)

    # And they are not sent again
    server.start()
    with server.look() as look:
        assert look.xlen("orders") <= 1


def _blocked(look: Any) -> bool:
    """Whether the server has read an XADD and blocks it."""
    return any("xadd" in str(one["cmd"]) for one in look.client_list() if "b" in one["flags"])
