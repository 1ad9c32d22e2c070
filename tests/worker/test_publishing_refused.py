"""A store that refuses writes for a while: sending is retried, and the error says what was not added."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import redis
import redis.asyncio
import redis.exceptions

from headwater.common.limits import JOURNAL_FILE_BYTES
from headwater.errors import NotReplicated, NotSent
from headwater.groups.protocol.operation import Refused
from headwater.groups.settling.adding import Adding
from headwater.groups.settling.settling import Addition
from headwater.testing.files import CrashableFiles
from headwater.testing.server import server_thread
from headwater.worker import App, Stream
from headwater.worker.declare import stream as streams
from headwater.worker.publish import publishing
from tests import peers
from tests.worker.apps import Order, eventually
from tests.worker.outages import OUTAGES, PEERS, Outage
from tests.worker.proxy import proxy

StartPeer = Callable[..., peers.Peer]


class Text(msgspec.Struct):
    value: str


orders: Stream[Order] = Stream("orders", Order)


@asynccontextmanager
async def outage_of(server: peers.Peer, outage: Outage) -> AsyncIterator[redis.asyncio.Redis]:
    """Add one order, begin the outage, and yield a connection to the store."""
    async with redis.asyncio.Redis.from_url(server.url) as look:
        await look.xadd("orders", {"id": "0"})
        await outage.begin(look, server.directory)
        yield look


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("outage", OUTAGES, ids=str)
async def test_messages_refused_during_an_outage_are_added_after_it(
    peer: StartPeer, name: str, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a store that refuses writes
    monkeypatch.setattr(publishing, "RECONNECT_SECONDS", 20.0)
    server = peer(name)
    async with outage_of(server, outage) as look, App(server.url) as app:
        # When messages are sent in every way
        sending = [
            asyncio.ensure_future(app.send_many(orders, [Order(1), Order(2)])),
            asyncio.ensure_future(app.send(orders, Order(3), dedupe="three")),
            asyncio.ensure_future(asyncio.to_thread(app.publish, orders, Order(4))),
        ]
        await asyncio.wait(sending, timeout=0.1)
        assert not any(one.done() for one in sending)

        # Then they are added once, when the store accepts writes again
        await outage.end(look, server.directory)
        await asyncio.gather(*sending)
        entries: Any = await look.xrange("orders")
    assert sorted(fields[b"id"] for _id, fields in entries) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("outage", OUTAGES, ids=str)
async def test_not_sent_has_the_reply_of_a_store_that_keeps_refusing_writes(
    peer: StartPeer, name: str, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "RECONNECT_SECONDS", 0.1)
    code = "(READONLY|MASTERDOWN)" if outage.code == "MASTERDOWN" else outage.code
    server = peer(name)
    async with outage_of(server, outage) as look, App(server.url) as app:
        with pytest.raises(NotSent, match=f"2 messages for 'orders' .*{code}") as raised:
            await app.send_many(orders, [Order(1), Order(2)])
        assert (raised.value.added, raised.value.missing) == ([], [0, 1])
        with pytest.raises(NotSent, match=code):
            await app.send(orders, Order(3), dedupe="three")
        with pytest.raises(NotSent, match=code):
            await asyncio.to_thread(app.publish, orders, Order(4))
        await outage.end(look, server.directory)
        assert await look.xlen("orders") == 1


@pytest.mark.slow
async def test_messages_wait_while_the_disk_of_headwater_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a Headwater server whose disk is almost full
    monkeypatch.setattr(publishing, "RECONNECT_SECONDS", 20.0)
    files, numbers = CrashableFiles(capacity=JOURNAL_FILE_BYTES + 4096), itertools.count()
    with server_thread(files=files) as server, redis.Redis.from_url(server.url) as look:
        for _ in range(5):  # a checkpoint that is tried makes a little room first
            with pytest.raises(redis.exceptions.ResponseError, match="MISCONF"):
                while True:
                    # Another key each time: a checkpoint would drop what was overwritten.
                    look.set(f"filler-{next(numbers)}", b"x" * (1024 * 1024))
        async with App(server.url) as app:
            text: Stream[Text] = Stream("text", Text)
            sending = [
                asyncio.ensure_future(app.send(text, Text("y" * 1024 * 1024))),
                asyncio.ensure_future(app.send(text, Text("z" * 1024 * 1024), dedupe="z")),
            ]
            await asyncio.wait(sending, timeout=0.1)
            assert not any(one.done() for one in sending)

            # When there is room, then they are added once
            files.capacity = None
            await asyncio.gather(*sending)
        assert look.xlen("text") == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
async def test_sending_reconnects_when_the_address_leads_to_another_server(
    peer: StartPeer, name: str
) -> None:
    # Given a client connected to a primary, which is then demoted, at an address that leads to the
    # new primary from now on
    first, second = peer(name), peer(name)
    async with proxy(first.url) as address, App(address.url) as app:
        await app.send(orders, Order(1))
        with redis.Redis.from_url(first.url) as look:
            look.replicaof("127.0.0.1", "1")
        address.target = second.url

        # When messages are sent, then they are added to the new primary
        await app.send(orders, Order(2))
        await asyncio.to_thread(app.publish, orders, Order(3))
    with redis.Redis.from_url(second.url) as look:
        assert look.xlen("orders") == 2


def test_only_refused_entries_are_sent_again() -> None:
    # Given three entries, of which the store accepts the first and the last
    batch = Adding([Addition("s", [(b"n", b"%d" % n)]) for n in range(3)])
    sending = batch.rest()
    assert len(next(sending)) == 3
    with pytest.raises(Refused, match="OOM"):
        sending.send([b"1-0", Refused("OOM command not allowed"), b"2-0"])

    # When it accepts writes again
    sending = batch.rest()
    (command,) = next(sending)
    with pytest.raises(StopIteration):
        sending.send([b"3-0"])

    # Then only the second was sent again
    assert command[-1] == b"1"
    assert batch.outcomes == ["1-0", "3-0", "2-0"]


@pytest.mark.parametrize("name", PEERS)
async def test_demoting_the_primary_during_a_wait_for_replicas_adds_no_duplicate(
    peer: StartPeer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message that waits for a replica that does not exist
    monkeypatch.setattr(streams, "REPLICAS_TIMEOUT_MS", 20_000)
    server = peer(name)
    async with redis.asyncio.Redis.from_url(server.url) as look, App(server.url) as app:
        sending = asyncio.ensure_future(app.send(orders, Order(1), wait=1))

        async def waits() -> bool:
            return any("b" in one["flags"] for one in await look.client_list())

        await eventually(waits)

        # When its server becomes a replica
        await look.replicaof("127.0.0.1", "1")

        # Then the error has the id of the message, which was added once
        with pytest.raises(NotReplicated, match="0 of 1 replicas confirmed") as raised:
            await sending
        entries: Any = await look.xrange("orders")
        assert [one[0].decode() for one in entries] == [raised.value.id]
