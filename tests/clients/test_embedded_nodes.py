"""A node that the caller made, its clock, and redis-py's use of the embedded socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
import redis
from redis._parsers import _RESP2Parser, _RESP3Parser

import headwater
from headwater.client.embedded_opening import node_of
from headwater.errors import ConfigError
from headwater.server.turn.node import Node
from headwater.testing.clock import ManualClock
from tests.clients.uniform import blocked

# --- the node and its clock -------------------------------------------------------------------------


def test_a_callers_node_is_used_and_left_open() -> None:
    clock = ManualClock()
    node = Node(clock=clock)
    with headwater.connect(node=node) as client:
        assert node_of(client) is node
        client.xadd("orders", {"item": "tea"})
    with headwater.connect(node=node) as client:
        assert client.xlen("orders") == 1


async def test_a_callers_node_is_shared_by_sync_and_asyncio_with_its_clock(
    submit: Callable[..., Future[Any]],
) -> None:
    clock = ManualClock()
    node = Node(clock=clock)
    async with headwater.aio.connect(node=node) as client:
        with headwater.connect(node=node) as other:
            waiting = asyncio.ensure_future(client.xread({"orders": "$"}, block=60_000))
            in_thread = submit(other.xread, {"orders": "$"}, block=61_000)
            await blocked(client, 2)
            clock.advance(60)
            assert not await waiting
            assert not in_thread.done()
            clock.advance(1)
            assert not in_thread.result(10)


@pytest.mark.parametrize("module", [headwater, headwater.aio])
def test_a_node_cannot_be_combined_with_a_url_or_a_clock(module: Any) -> None:
    for options in ({"clock": ManualClock()}, {"url": "headwater://memory"}):
        with pytest.raises(ConfigError, match="remove url and clock="):
            module.connect(node=Node(), **options)
    with pytest.raises(ConfigError, match="names a server"):
        module.connect("redis://localhost", clock=ManualClock())


def test_only_an_embedded_store_has_a_node() -> None:
    with (
        headwater.connect("redis://127.0.0.1:1") as client,
        pytest.raises(ConfigError, match="only a store in this process has a node"),
    ):
        node_of(client)


# --- redis-py's use of the socket -------------------------------------------------------------------


@pytest.mark.parametrize(("parser", "protocol"), [(_RESP2Parser, 2), (_RESP3Parser, 3)])
def test_parsers_without_hiredis_work(url: str, parser: Any, protocol: int) -> None:
    with headwater.connect(url, parser_class=parser, protocol=protocol) as client:
        client.xadd("orders", {"scan": b"x" * 200_000}, id="1-1")
        assert client.xrange("orders") == [(b"1-1", {b"scan": b"x" * 200_000})]
        assert not client.xread({"orders": "$"}, block=5)


async def test_parsers_without_hiredis_work_in_asyncio(url: str) -> None:
    from redis._parsers import _AsyncRESP3Parser

    async with headwater.aio.connect(url, parser_class=_AsyncRESP3Parser) as client:
        await client.xadd("orders", {"scan": b"x" * 200_000}, id="1-1")
        assert await client.xrange("orders") == [(b"1-1", {b"scan": b"x" * 200_000})]


def test_the_callers_timeouts_apply(url: str) -> None:
    with headwater.connect(url, socket_timeout=0.01) as client:
        connection = client.connection_pool.get_connection()
        assert connection.can_read(timeout=0) is False
        assert connection.can_read(timeout=0.01) is False
        with pytest.raises(redis.TimeoutError):
            connection.read_response()
        client.connection_pool.release(connection)
        # BLOCK may exceed it
        assert not client.xread({"orders": "$"}, block=50)


def test_an_unread_reply_is_noticed_before_the_connection_is_reused(url: str) -> None:
    with headwater.connect(url, max_connections=1) as client:
        connection = client.connection_pool.get_connection()
        connection.send_command("ECHO", "stale")
        client.connection_pool.release(connection)
        assert client.echo("fresh") == b"fresh"
