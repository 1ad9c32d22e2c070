"""Many threads and loops use one embedded store; each blocked client gets its reply in time, or an error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
import redis

import headwater
from headwater.client.embedded_opening import node_of
from tests.clients.uniform import blocked, entries
from tests.waiting import in_time

# --- in real time -----------------------------------------------------------------------------------


def test_block_times_out_without_other_clients(client: redis.Redis) -> None:
    assert not client.xread({"orders": "$"}, block=20)


async def test_block_times_out_without_other_clients_in_asyncio(url: str) -> None:
    async with headwater.aio.connect(url) as client:
        assert not await client.xread({"orders": "$"}, block=20)


async def test_a_shorter_wait_that_begins_later_ends_first(
    client: redis.Redis, submit: Callable[..., Future[Any]]
) -> None:
    # Given a thread that blocks for a minute
    longer = submit(client.xread, {"orders": "$"}, block=60_000)
    await blocked(client)
    # When another blocks for less, then it gets its reply while the first still waits
    assert not client.xread({"bills": "$"}, block=20)
    assert not longer.done()
    client.xadd("orders", {"item": "tea"})
    assert longer.result(10)


async def test_a_delay_ends_while_all_clients_block_without_a_limit(
    client: redis.Redis, submit: Callable[..., Future[Any]]
) -> None:
    # Given a thread that blocks for a claimable entry, without a limit
    client.xgroup_create("orders", "ops", id="0", mkstream=True)
    entry_id = client.xadd("orders", {"item": "tea"})
    client.xreadgroup("ops", "bill", {"orders": ">"})
    read = "XREADGROUP GROUP ops anna BLOCK 0 CLAIM 3600000 STREAMS orders >"
    waiting = submit(client.execute_command, *read.split(" "))
    await blocked(client)
    # When the entry's owner delays it for 30 ms and no client does anything more
    settle = "XSETTLE orders ops bill FAIL DELAY 30 IDS 1"
    client.execute_command(*settle.split(" "), entry_id)
    # Then the thread gets it after the delay
    assert str(entry_id) in str(waiting.result(10))


async def test_threads_and_loops_wake_each_other(
    url: str, client: redis.Redis, submit: Callable[..., Future[Any]]
) -> None:
    async with headwater.aio.connect(url, decode_responses=True) as other:
        # A thread waits, the loop adds
        in_thread = submit(client.xread, {"orders": "$"}, block=0)
        await blocked(client)
        await other.xadd("orders", {"n": 1})
        assert in_thread.result(10)
        # The loop waits, a thread adds
        in_loop = asyncio.ensure_future(other.xread({"orders": "$"}, block=0))
        await blocked(client)
        submit(client.xadd, "orders", {"n": 2}).result(10)
        assert await in_loop
        # The loop waits with a limit, and a thread's turn does not extend it
        timed = asyncio.ensure_future(other.xread({"orders": "$"}, block=30))
        await blocked(client)
        submit(client.xread, {"bills": "$"}, block=1).result(10)
        assert not await timed


async def test_two_loops_use_one_store(
    url: str, client: redis.Redis, submit: Callable[..., Future[Any]]
) -> None:
    # Given another loop in another thread, which blocks
    async def wait() -> Any:
        async with headwater.aio.connect(url, decode_responses=True) as other:
            first = await other.xread({"bills": "$"}, block=10)
            await other.set("first", "over")
            return first, await other.xread({"orders": "$"}, block=0)

    waiting = submit(asyncio.run, wait())
    await in_time(lambda: client.exists("first") == 1)
    await blocked(client)
    # When this loop adds an entry, then the other one gets it
    async with headwater.aio.connect(url) as mine:
        await mine.xadd("orders", {"item": "tea"})
    first, second = waiting.result(10)
    assert (bool(first), bool(second)) == (False, True)


def test_other_clients_continue_after_a_loop_has_ended(url: str, client: redis.Redis) -> None:
    # Given a loop that ended without closing its client
    forgotten: list[Any] = []

    async def forget() -> None:
        other = headwater.aio.connect(url)
        await other.ping()
        forgotten.append(other)

    asyncio.run(forget())
    # When others block and add, then they are served
    assert not client.xread({"orders": "$"}, block=10)
    assert client.xadd("orders", {"item": "tea"})
    with pytest.warns(ResourceWarning, match="unclosed"):
        forgotten.clear()


def test_many_threads_lose_nothing(client: redis.Redis) -> None:
    # Given eight threads that add, in pipelines and with single commands, and three that consume
    client.xgroup_create("orders", "ops", id="0", mkstream=True)
    done = threading.Event()
    seen: list[str] = []

    def produce(number: int) -> None:
        for step in range(40):
            if step % 2:
                client.xadd("orders", {"n": f"{number}-{step}"})
            else:
                pipeline = client.pipeline(transaction=step % 4 == 0)
                pipeline.xadd("orders", {"n": f"{number}-{step}"})
                pipeline.xlen("orders")
                pipeline.execute()

    def consume(name: str) -> None:
        while True:
            last = done.is_set()
            reply: Any = client.xreadgroup("ops", name, {"orders": ">"}, block=20)
            for _stream, items in entries(reply):
                for entry_id, fields in items:
                    seen.append(fields["n"])
                    client.xack("orders", "ops", entry_id)
            if last:
                return

    consumers = [threading.Thread(target=consume, args=(f"c{n}",)) for n in range(3)]
    producers = [threading.Thread(target=produce, args=(n,)) for n in range(8)]
    for thread in (*consumers, *producers):
        thread.start()
    for thread in producers:
        thread.join()
    done.set()
    for thread in consumers:
        thread.join()
    # Then each entry is consumed once
    assert sorted(seen) == sorted(f"{number}-{step}" for number in range(8) for step in range(40))
    assert client.xpending("orders", "ops")["pending"] == 0


# --- closing and cancelling -------------------------------------------------------------------------


async def test_a_blocked_thread_gets_an_error_when_its_client_is_closed(
    url: str, client: redis.Redis, submit: Callable[..., Future[Any]]
) -> None:
    other = headwater.connect(url)
    client.xgroup_create("orders", "ops", id="0", mkstream=True)
    waiting = submit(other.xreadgroup, "ops", "bill", {"orders": ">"}, block=0)
    await blocked(client)
    other.close()
    with pytest.raises(redis.ConnectionError, match="XREADGROUP had been sent"):
        waiting.result(10)
    assert node_of(client).blocked.waiting.count == 0


async def test_a_cancelled_call_leaves_no_reply_behind(url: str) -> None:
    async with headwater.aio.connect(url, decode_responses=True, max_connections=1) as client:
        await client.xadd("orders", {"n": 0})
        # Given a call that is cancelled while it waits
        waiting = asyncio.ensure_future(client.xread({"orders": "$"}, block=0))
        await blocked(client)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # Then the store does not block it any more
        assert node_of(client).blocked.waiting.count == 0
        # And no other call of the connection gets its reply
        await client.xadd("orders", {"n": 1})
        assert await client.xlen("orders") == 2
        assert await client.echo("mine") == "mine"


async def test_a_call_that_times_out_leaves_no_reply_behind(url: str) -> None:
    async with headwater.aio.connect(url, decode_responses=True, max_connections=1) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.xread({"orders": "$"}, block=0), 0.01)
        await client.xadd("orders", {"n": 1})
        assert await client.echo("mine") == "mine"


async def test_a_killed_connection_raises_an_error_and_is_replaced(
    url: str, client: redis.Redis, submit: Callable[..., Future[Any]]
) -> None:
    other = headwater.connect(url)
    other.xgroup_create("orders", "ops", id="0", mkstream=True)
    waiting = submit(client.xreadgroup, "ops", "bill", {"orders": ">"}, block=0)
    await blocked(client)
    (target,) = (entry["id"] for entry in other.client_list() if entry["cmd"] == "xreadgroup")
    other.client_kill_filter(_id=target)
    with pytest.raises(redis.ConnectionError, match="XREADGROUP had been sent"):
        waiting.result(10)
    assert client.ping()
    other.close()


def test_malformed_input_gets_an_error_and_closes_the_connection(client: redis.Redis) -> None:
    connection = client.connection_pool.get_connection()
    connection.send_packed_command([b"*1\r\n!nonsense\r\n"])
    with pytest.raises(redis.ResponseError, match="Protocol error"):
        connection.read_response()
    with pytest.raises(redis.ConnectionError, match="closed"):
        connection.read_response()
    client.connection_pool.release(connection)
    assert client.ping()
