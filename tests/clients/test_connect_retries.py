"""A command that may have run is not sent twice; what may run twice is, and an answer is waited for
as long as was asked."""

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
from tests.clients.faces import Face, until
from tests.clients.proxy import Cut, CuttingProxy
from tests.peers import Peer, free_port


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


async def test_an_add_whose_answer_is_lost_ran_once_and_says_so(
    port: int, proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    face = open_face(proxy.url)
    # Given a connection that is lost when the server has added the entry
    await face("ping")
    proxy.cuts.append(Cut(b"XADD", "after"))
    # When the client adds, then it is told that it may have happened
    with pytest.raises(redis.ConnectionError, match="XADD had been sent and may have run"):
        await face("xadd", "orders", {"item": "tea"})
    # Then it did, once
    assert await face("xlen", "orders") == 1
    await face.close()


async def test_redis_py_by_itself_adds_twice(port: int, proxy: CuttingProxy) -> None:
    """What the rule is for; when this fails, redis-py has changed and the rule may go."""
    with redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 3)) as client:
        client.ping()
        proxy.cuts.append(Cut(b"XADD", "after"))
        client.xadd("orders", {"item": "tea"})
        assert client.xlen("orders") == 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_read_is_asked_again(
    port: int, proxy: CuttingProxy, open_face: Callable[..., Face], when: Any
) -> None:
    face = open_face(proxy.url)
    await face("xadd", "orders", {"item": "tea"})
    proxy.cuts += [Cut(b"XLEN", when)] * 2
    assert await face("xlen", "orders") == 1
    assert proxy.cuts == []
    await face.close()


async def test_without_a_retry_policy_the_nodes_of_a_cluster_are_asked_once(
    proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    proxy.cuts += [Cut(b"CLUSTER", "before")] * 3
    face = open_face(proxy.url.replace("redis://", "redis+cluster://"), retry=None)
    with pytest.raises(redis.ConnectionError):
        await face("xlen", "orders")
    assert len(proxy.cuts) == 2
    await face.close()


async def test_an_acknowledgement_is_sent_again(
    port: int, proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    # Given a delivered entry
    face = open_face(proxy.url)
    entry_id = await face("xadd", "orders", {"item": "tea"})
    await face("xgroup_create", "orders", "ops", id="0")
    await face("xreadgroup", "ops", "bill", {"orders": ">"})
    # When the answer to its acknowledgement is lost
    proxy.cuts.append(Cut(b"XACK", "after"))
    await face("xack", "orders", "ops", entry_id)
    # Then it is acknowledged, and nobody had to know
    assert (await face("xpending", "orders", "ops"))["pending"] == 0
    await face.close()


async def test_a_group_read_whose_answer_is_lost_takes_no_second_batch(
    port: int, proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    face = open_face(proxy.url)
    for number in range(2):
        await face("xadd", "orders", {"n": number})
    await face("xgroup_create", "orders", "ops", id="0")
    proxy.cuts.append(Cut(b"XREADGROUP", "after"))
    with pytest.raises(redis.ConnectionError, match="XREADGROUP had been sent"):
        await face("xreadgroup", "ops", "bill", {"orders": ">"}, count=1)
    assert (await face("xpending", "orders", "ops"))["pending"] == 1
    await face.close()


async def test_a_pipeline_is_repeated_only_if_all_of_it_may_be(
    port: int, proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    face = open_face(proxy.url)
    await face("xadd", "orders", {"item": "tea"})
    # Given reads only: they are asked again
    for transaction in (True, False):
        proxy.cuts.append(Cut(b"XLEN", "after"))
        reads = face.client.pipeline(transaction=transaction).xlen("orders").exists("orders")
        assert await face.call(reads.execute) == [1, 1]
    # Given one that adds among them: nothing is sent again
    for number, transaction in enumerate((True, False)):
        proxy.cuts.append(Cut(b"XADD", "after"))
        mixed = face.client.pipeline(transaction=transaction).xlen("orders")
        mixed.xadd("orders", {"n": number})
        with pytest.raises(redis.ConnectionError, match="XADD had been sent"):
            await face.call(mixed.execute)
        assert await face("xlen", "orders") == 2 + number
    await face.close()


async def test_a_watched_transaction_that_may_have_run_is_no_watch_error(
    port: int, proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    """WatchError means "do it again", and redis-py's `transaction` does."""
    face = open_face(proxy.url)
    pipeline = face.client.pipeline()
    await face.call(pipeline.watch, "orders")
    pipeline.multi()
    pipeline.xadd("orders", {"item": "tea"})
    proxy.cuts.append(Cut(b"EXEC", "after"))
    with pytest.raises(redis.ConnectionError, match="may have run"):
        await face.call(pipeline.execute)
    assert await face("xlen", "orders") == 1
    await face.close()


async def test_a_lost_watch_is_a_watch_error(
    port: int, proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    face = open_face(proxy.url)
    pipeline = face.client.pipeline()
    await face.call(pipeline.watch, "orders")
    proxy.cuts.append(Cut(b"XLEN", "before"))
    with pytest.raises(redis.WatchError):
        await face.call(pipeline.xlen, "orders")
    await face.call(pipeline.aclose if face.asynchronous else pipeline.close)
    await face.close()


async def test_nothing_is_repeated_on_a_connection_that_held_an_open_multi(
    port: int, proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    # Given a connection on which MULTI was sent by hand
    face = open_face(proxy.url, single_connection_client=True)
    await face("execute_command", "MULTI")
    proxy.cuts.append(Cut(b"XLEN", "before"))
    # When it is lost, then a read is not asked on another, where it would not be queued
    with pytest.raises(redis.ConnectionError):
        await face("execute_command", "XLEN", "orders")
    await face.close()


async def test_connecting_is_tried_again_whatever_the_command(
    port: int, proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    # Given a server that ends the first two connections while they are made
    proxy.cuts += [Cut(b"HELLO", "before"), Cut(b"SETINFO", "after")]
    face = open_face(proxy.url)
    # When a client adds, then it is added once
    await face("xadd", "orders", {"item": "tea"})
    assert await face("xlen", "orders") == 1
    assert proxy.cuts == []
    await face.close()


async def test_a_connection_that_died_while_idle_is_replaced_without_a_word(
    port: int, proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    # Given a client whose idle connection the server has ended
    face, other = open_face(proxy.url, client_name="idle"), open_face(proxy.url)
    await face("ping")
    idle = next(c for c in await other("client_list") if c["name"] == "idle")
    await other("client_kill_filter", _id=idle["id"])
    await until(_has_ended(face))
    # When it adds, then it is added once
    await face("xadd", "orders", {"item": "tea"})
    assert await face("xlen", "orders") == 1
    await face.close()
    await other.close()


def _has_ended(face: Face) -> Callable[[], bool]:
    (connection,) = face.client.connection_pool._available_connections
    if face.asynchronous:
        ended: Callable[[], bool] = connection._reader.at_eof
        return ended
    return lambda: bool(select.select([connection._sock], [], [], 0)[0])  # nothing else can come


async def test_connecting_ends_with_an_error_when_nobody_answers(
    open_face: Callable[..., Face],
) -> None:
    face = open_face(f"redis://127.0.0.1:{free_port()}", retry=_three_times(open_face))
    with pytest.raises(redis.ConnectionError, match="Error 111 connecting") as caught:
        await face("xadd", "orders", {"item": "tea"})
    assert "may have run" not in str(caught.value)
    await face.close()


def _three_times(open_face: Callable[..., Face]) -> Any:
    asynchronous = inspect.getclosurevars(open_face).nonlocals["asynchronous"]
    return (redis.asyncio.retry.Retry if asynchronous else Retry)(NoBackoff(), 3)


async def test_a_wrong_password_is_not_tried_again(open_face: Callable[..., Face]) -> None:
    from headwater.config.config import Config

    with (
        server_thread(Config(port=0, appendonly=False, requirepass="right")) as server,
        CuttingProxy(server.port) as proxy,
    ):
        face = open_face(proxy.url, password="wrong")
        with pytest.raises(redis.AuthenticationError, match="invalid username-password pair"):
            await face("ping")
        assert proxy.connections == 1
        await face.close()


# --- how long an answer is waited for ---------------------------------------------------------------


async def test_block_is_waited_for_beyond_the_usual_time(
    port: int, open_face: Callable[..., Face]
) -> None:
    # Given a client that gives an answer 50 ms, and a BLOCK of four times that
    face = open_face(f"redis://127.0.0.1:{port}", socket_timeout=0.05)
    # Then the answer of the server ends it, no error of the client
    assert not await face("xread", {"orders": "$"}, block=200)
    pipeline = face.client.pipeline(transaction=False)
    pipeline.xread({"orders": "$"}, block=100).xread({"orders": "$"}, block=100).xlen("orders")
    assert [bool(reply) for reply in await face.call(pipeline.execute)] == [False] * 3
    await face.close()


async def test_block_for_ever_is_waited_for_until_something_comes(
    port: int, open_face: Callable[..., Face]
) -> None:
    face = open_face(f"redis://127.0.0.1:{port}", socket_timeout=0.02)
    reading = asyncio.create_task(face("xread", {"orders": "$"}, block=0))
    other = open_face(f"redis://127.0.0.1:{port}")

    async def blocked() -> bool:
        return any(client["cmd"] == "xread" for client in await other("client_list"))

    while not await blocked():  # noqa: ASYNC110 - only the server knows
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # five times what another answer may take
    assert not reading.done()
    await other("xadd", "orders", {"item": "tea"})
    assert await reading
    await face.close()
    await other.close()


@pytest.mark.parametrize("command", ["XADD orders * a 1", "XREAD BLOCK 50 STREAMS orders $"])
async def test_a_server_that_says_nothing_is_an_error_in_time(
    port: int, proxy: CuttingProxy, open_face: Callable[..., Face], command: str
) -> None:
    # Given a client that is connected, and a server that falls silent
    face = open_face(proxy.url, socket_timeout=0.2, retry=_three_times(open_face))
    await face("ping")
    proxy.silent = True
    # When the client asks, then it waits for its time and no longer
    with pytest.raises(redis.TimeoutError, match="Timeout reading"):
        await face("execute_command", *command.split())
    # Then the late answer is not taken for another's
    proxy.silent = False
    assert await face("echo", "late") == b"late"
    await face.close()


async def test_what_is_given_to_redis_py_is_redis_pys(open_face: Callable[..., Face]) -> None:
    """Options of redis-py pass through; what `connect` sets itself gives way."""
    face = open_face(
        "redis://127.0.0.1:1?db=5", decode_responses=True, socket_timeout=7, max_connections=3
    )
    options = face.client.connection_pool.connection_kwargs
    assert (options["db"], options["socket_timeout"]) == (5, 7)
    assert face.client.connection_pool.max_connections == 3
    assert face.client.get_encoder().decode_responses
    await face.close()


def test_a_unix_socket_is_reached_by_its_path(tmp_path: Any, peer: Callable[..., Peer]) -> None:
    server = peer("redis-8.2", unixsocket=True)
    with headwater.connect(server.unix_url) as client:
        assert client.ping()
