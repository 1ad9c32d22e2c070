"""A command that may have run is not sent again, unless it may run twice. A client waits for a reply as
long as the command may block."""

from __future__ import annotations

import asyncio
import inspect
import select
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import headwater
from headwater.testing.server import server_thread
from tests.clients.proxy import Cut, CuttingProxy
from tests.clients.uniform import UniformClient
from tests.peers import Peer, free_port
from tests.waiting import in_time


@pytest.fixture(params=["headwater", pytest.param("redis-8.2", marks=pytest.mark.peer)])
def port(request: pytest.FixtureRequest, shared_peer: Callable[[str], Peer]) -> Iterator[int]:
    if request.param == "headwater":
        with server_thread() as server:
            yield server.port
    else:
        yield shared_peer(request.param).port


@pytest.fixture
def proxy(port: int) -> Iterator[CuttingProxy]:
    with CuttingProxy(port) as proxy:
        yield proxy


async def test_an_add_whose_reply_is_lost_runs_once_and_the_error_says_so(
    port: int, proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    client = open_client(proxy.url)
    # Given a connection that is closed after the server has added the entry
    await client("ping")
    proxy.cuts.append(Cut(b"XADD", "after"))
    # When the client adds, then the error says that the command may have run
    with pytest.raises(redis.ConnectionError, match="XADD had been sent and may have run"):
        await client("xadd", "orders", {"item": "tea"})
    # Then it has run once
    assert await client("xlen", "orders") == 1
    await client.close()


async def test_plain_redis_py_adds_twice(port: int, proxy: CuttingProxy) -> None:
    """The reason for the rule. If this fails, redis-py has changed and the rule can be removed."""
    with redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 3)) as client:
        client.ping()
        proxy.cuts.append(Cut(b"XADD", "after"))
        client.xadd("orders", {"item": "tea"})
        assert client.xlen("orders") == 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_read_is_sent_again(
    port: int, proxy: CuttingProxy, open_client: Callable[..., UniformClient], when: Any
) -> None:
    client = open_client(proxy.url)
    await client("xadd", "orders", {"item": "tea"})
    proxy.cuts += [Cut(b"XLEN", when)] * 2
    assert await client("xlen", "orders") == 1
    assert proxy.cuts == []
    await client.close()


async def test_without_retries_the_nodes_of_a_cluster_are_asked_once(
    proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    proxy.cuts += [Cut(b"CLUSTER", "before")] * 3
    client = open_client(proxy.url.replace("redis://", "redis+cluster://"), retry=None)
    with pytest.raises(redis.ConnectionError):
        await client("xlen", "orders")
    assert len(proxy.cuts) == 2
    await client.close()


async def test_an_acknowledgement_is_sent_again(
    port: int, proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    # Given a delivered entry
    client = open_client(proxy.url)
    entry_id = await client("xadd", "orders", {"item": "tea"})
    await client("xgroup_create", "orders", "ops", id="0")
    await client("xreadgroup", "ops", "bill", {"orders": ">"})
    # When the reply to its acknowledgement is lost
    proxy.cuts.append(Cut(b"XACK", "after"))
    await client("xack", "orders", "ops", entry_id)
    # Then it is acknowledged without an error
    assert (await client("xpending", "orders", "ops"))["pending"] == 0
    await client.close()


async def test_a_group_read_whose_reply_is_lost_is_not_repeated(
    port: int, proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    client = open_client(proxy.url)
    for number in range(2):
        await client("xadd", "orders", {"n": number})
    await client("xgroup_create", "orders", "ops", id="0")
    proxy.cuts.append(Cut(b"XREADGROUP", "after"))
    with pytest.raises(redis.ConnectionError, match="XREADGROUP had been sent"):
        await client("xreadgroup", "ops", "bill", {"orders": ">"}, count=1)
    assert (await client("xpending", "orders", "ops"))["pending"] == 1
    await client.close()


async def test_a_pipeline_is_repeated_only_if_all_its_commands_may_be(
    port: int, proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    client = open_client(proxy.url)
    await client("xadd", "orders", {"item": "tea"})
    # Given only reads: they are sent again
    for transaction in (True, False):
        proxy.cuts.append(Cut(b"XLEN", "after"))
        reads = client.redis.pipeline(transaction=transaction).xlen("orders").exists("orders")
        assert await client.call(reads.execute) == [1, 1]
    # Given an XADD among them: nothing is sent again
    for number, transaction in enumerate((True, False)):
        proxy.cuts.append(Cut(b"XADD", "after"))
        mixed = client.redis.pipeline(transaction=transaction).xlen("orders")
        mixed.xadd("orders", {"n": number})
        with pytest.raises(redis.ConnectionError, match="XADD had been sent"):
            await client.call(mixed.execute)
        assert await client("xlen", "orders") == 2 + number
    await client.close()


async def test_a_watched_transaction_that_may_have_run_does_not_raise_watch_error(
    port: int, proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    """WatchError means "repeat it", and redis-py's `transaction` does so."""
    client = open_client(proxy.url)
    pipeline = client.redis.pipeline()
    await client.call(pipeline.watch, "orders")
    pipeline.multi()
    pipeline.xadd("orders", {"item": "tea"})
    proxy.cuts.append(Cut(b"EXEC", "after"))
    with pytest.raises(redis.ConnectionError, match="may have run"):
        await client.call(pipeline.execute)
    assert await client("xlen", "orders") == 1
    await client.close()


async def test_a_lost_watch_raises_watch_error(
    port: int, proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    client = open_client(proxy.url)
    pipeline = client.redis.pipeline()
    await client.call(pipeline.watch, "orders")
    proxy.cuts.append(Cut(b"XLEN", "before"))
    with pytest.raises(redis.WatchError):
        await client.call(pipeline.xlen, "orders")
    await client.call(pipeline.aclose if client.asynchronous else pipeline.close)
    await client.close()


async def test_nothing_is_repeated_on_a_connection_with_an_open_multi(
    port: int, proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    # Given a connection on which MULTI was sent by hand
    client = open_client(proxy.url, single_connection_client=True)
    await client("execute_command", "MULTI")
    proxy.cuts.append(Cut(b"XLEN", "before"))
    # When it is lost, then a read is not sent on another connection, where it would not be queued
    with pytest.raises(redis.ConnectionError):
        await client("execute_command", "XLEN", "orders")
    await client.close()


async def test_connecting_is_retried_for_every_command(
    port: int, proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    # Given a server that closes the first two connections while the client sets them up
    proxy.cuts += [Cut(b"HELLO", "before"), Cut(b"SETINFO", "after")]
    client = open_client(proxy.url)
    # When a client adds, then it is added once
    await client("xadd", "orders", {"item": "tea"})
    assert await client("xlen", "orders") == 1
    assert proxy.cuts == []
    await client.close()


async def test_a_connection_that_was_closed_while_idle_is_replaced_without_an_error(
    port: int, proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    # Given a client whose idle connection the server has closed
    client, other = open_client(proxy.url, client_name="idle"), open_client(proxy.url)
    await client("ping")
    idle = next(c for c in await other("client_list") if c["name"] == "idle")
    await other("client_kill_filter", _id=idle["id"])
    await in_time(_has_ended(client))
    # When it adds, then it is added once
    await client("xadd", "orders", {"item": "tea"})
    assert await client("xlen", "orders") == 1
    await client.close()
    await other.close()


def _has_ended(client: UniformClient) -> Callable[[], bool]:
    (connection,) = client.redis.connection_pool._available_connections
    if client.asynchronous:
        ended: Callable[[], bool] = connection._reader.at_eof
        return ended
    return lambda: bool(select.select([connection._sock], [], [], 0)[0])  # no other data can arrive


async def test_connecting_to_a_closed_port_ends_with_an_error(
    open_client: Callable[..., UniformClient],
) -> None:
    client = open_client(f"redis://127.0.0.1:{free_port()}", retry=_three_times(open_client))
    with pytest.raises(redis.ConnectionError, match="Error 111 connecting") as caught:
        await client("xadd", "orders", {"item": "tea"})
    assert "may have run" not in str(caught.value)
    await client.close()


def _three_times(open_client: Callable[..., UniformClient]) -> Any:
    asynchronous = inspect.getclosurevars(open_client).nonlocals["asynchronous"]
    return (redis.asyncio.retry.Retry if asynchronous else Retry)(NoBackoff(), 3)


async def test_a_wrong_password_is_not_retried(
    open_client: Callable[..., UniformClient],
) -> None:
    from headwater.config.config import Config

    with (
        server_thread(Config(port=0, appendonly=False, save=(), requirepass="right")) as server,
        CuttingProxy(server.port) as proxy,
    ):
        client = open_client(proxy.url, password="wrong")
        with pytest.raises(redis.AuthenticationError, match="invalid username-password pair"):
            await client("ping")
        assert proxy.connections == 1
        await client.close()


# --- how long a client waits for a reply ------------------------------------------------------------


@pytest.mark.slow
async def test_block_may_exceed_the_socket_timeout(
    port: int, open_client: Callable[..., UniformClient]
) -> None:
    # Given a client that waits 50 ms for a reply, and a BLOCK of four times that
    client = open_client(f"redis://127.0.0.1:{port}", socket_timeout=0.05)
    # Then the server's reply ends the call, and not an error of the client
    assert not await client("xread", {"orders": "$"}, block=200)
    pipeline = client.redis.pipeline(transaction=False)
    pipeline.xread({"orders": "$"}, block=100).xread({"orders": "$"}, block=100).xlen("orders")
    assert [bool(reply) for reply in await client.call(pipeline.execute)] == [False] * 3
    await client.close()


async def test_block_without_a_limit_waits_for_an_entry(
    port: int, open_client: Callable[..., UniformClient]
) -> None:
    client = open_client(f"redis://127.0.0.1:{port}", socket_timeout=0.02)
    reading = asyncio.create_task(client("xread", {"orders": "$"}, block=0))
    other = open_client(f"redis://127.0.0.1:{port}")

    async def blocked() -> bool:
        return any(one["cmd"] == "xread" for one in await other("client_list"))

    while not await blocked():  # noqa: ASYNC110 - only the server knows
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # five times the limit for other replies
    assert not reading.done()
    await other("xadd", "orders", {"item": "tea"})
    assert await reading
    await client.close()
    await other.close()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["XADD orders * a 1", "XREAD BLOCK 50 STREAMS orders $"])
async def test_a_server_that_does_not_reply_raises_a_timeout(
    port: int, proxy: CuttingProxy, open_client: Callable[..., UniformClient], command: str
) -> None:
    # Given a connected client, and a server that stops replying
    client = open_client(proxy.url, socket_timeout=0.2, retry=_three_times(open_client))
    await client("ping")
    proxy.silent = True
    # When the client sends a command, then it waits for its timeout and not longer
    with pytest.raises(redis.TimeoutError, match="Timeout reading"):
        await client("execute_command", *command.split())
    # Then the late reply is not given to another call
    proxy.silent = False
    assert await client("echo", "late") == b"late"
    await client.close()


async def test_options_of_redis_py_are_passed_on(
    open_client: Callable[..., UniformClient],
) -> None:
    """They override the values that `connect` sets."""
    client = open_client(
        "redis://127.0.0.1:1?db=5", decode_responses=True, socket_timeout=7, max_connections=3
    )
    options = client.redis.connection_pool.connection_kwargs
    assert (options["db"], options["socket_timeout"]) == (5, 7)
    assert client.redis.connection_pool.max_connections == 3
    assert client.redis.get_encoder().decode_responses
    await client.close()


def test_a_unix_socket_is_reached_by_its_path(tmp_path: Any, peer: Callable[..., Peer]) -> None:
    server = peer("redis-8.2", unixsocket=True)
    with headwater.connect(server.unix_url) as client:
        assert client.ping()
