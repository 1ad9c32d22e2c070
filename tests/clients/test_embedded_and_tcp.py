"""A store behaves the same for every kind of client: embedded and over TCP, sync and asyncio."""

from __future__ import annotations

import asyncio
from inspect import getattr_static

import pytest
import redis

from tests.clients.uniform import UniformStore, entries

pytestmark = pytest.mark.slow


async def test_the_client_is_redis_pys_with_the_property_recovery(store: UniformStore) -> None:
    client = store.client()
    kind: type = type(client.redis)
    plain: type = redis.asyncio.Redis if store.asynchronous else redis.Redis
    assert issubclass(kind, plain)
    names = {name for name in dir(kind) if not name.startswith("_")}
    own = [
        name
        for name in names
        if getattr_static(kind, name) is not getattr_static(plain, name, None)
    ]
    assert own == ["recovery"]
    assert await client("ping") is True


async def test_a_client_reads_the_entries_of_another(store: UniformStore) -> None:
    writer, reader = store.client(), store.client()
    entry_id = await writer("xadd", "orders", {"item": "tea"})
    assert await reader("xrange", "orders") == [(entry_id, {"item": "tea"})]


async def test_the_replies_of_a_pipeline_of_10_000_are_in_order(store: UniformStore) -> None:
    # Given 10,000 commands in one pipeline
    client = store.client()
    pipeline = client.redis.pipeline(transaction=False)
    for number in range(10_000):
        pipeline.xadd("orders", {"n": number}, id=f"{number + 1}-0")
    # When it is executed
    ids = await client.call(pipeline.execute)
    # Then each has its reply, in order
    assert ids == [f"{number + 1}-0" for number in range(10_000)]
    assert await client("xlen", "orders") == 10_000


async def test_a_transaction_runs_as_one(store: UniformStore) -> None:
    client = store.client()
    pipeline = client.redis.pipeline(transaction=True)
    pipeline.xadd("orders", {"a": 1}, id="1-1").xlen("orders").xadd("bills", {"b": 2}, id="2-1")
    assert await client.call(pipeline.execute) == ["1-1", 1, "2-1"]


async def test_an_error_in_a_pipeline_does_not_affect_other_commands(store: UniformStore) -> None:
    client = store.client()
    await client("set", "word", "x")
    pipeline = client.redis.pipeline(transaction=False)
    pipeline.xadd("orders", {"a": 1}, id="1-1").xlen("word").xlen("orders")
    first, second, third = await client.call(pipeline.execute, raise_on_error=False)
    assert (first, third) == ("1-1", 1)
    assert isinstance(second, redis.ResponseError)
    assert "WRONGTYPE" in str(second)


async def test_a_change_of_a_watched_key_aborts_the_transaction(store: UniformStore) -> None:
    # Given a client that watches a key
    client, other = store.client(), store.client()
    pipeline = client.redis.pipeline()
    await client.call(pipeline.watch, "orders")
    pipeline.multi()
    pipeline.xadd("bills", {"a": 1})
    # When another changes it
    await other("xadd", "orders", {"b": 1})
    # Then nothing of the transaction runs
    with pytest.raises(redis.WatchError):
        await client.call(pipeline.execute)
    assert await other("exists", "bills") == 0


async def test_block_ends_at_its_timeout(store: UniformStore) -> None:
    # Given a client that blocks for five seconds
    client = store.client()
    reading = asyncio.create_task(client("xread", {"orders": "$"}, block=5000))
    await store.blocked(1)
    # When slightly less time has passed, it still waits
    store.advance(4.999)
    assert store.node.blocked.waiting.count == 1
    # When five seconds have passed, it gets its reply
    store.advance(0.001)
    assert not await reading


async def test_block_ends_when_another_client_adds(store: UniformStore) -> None:
    # Given a client that blocks without a limit
    client, other = store.client(), store.client()
    reading = asyncio.create_task(client("xread", {"orders": "$"}, block=0))
    await store.blocked(1)
    # When another adds an entry, then the first gets it
    entry_id = await other("xadd", "orders", {"item": "tea"})
    assert entries(await reading) == [("orders", [(entry_id, {"item": "tea"})])]


async def test_blocked_clients_are_served_in_the_order_of_blocking(store: UniformStore) -> None:
    # Given a group and three consumers that block in this order
    client = store.client()
    await client("xgroup_create", "orders", "ops", id="$", mkstream=True)
    consumers = []
    for number in range(3):
        consumers.append(
            asyncio.create_task(
                store.client()("xreadgroup", "ops", f"c{number}", {"orders": ">"}, block=0)
            )
        )
        await store.blocked(number + 1)
    # When three entries are added, then each consumer gets one, in order
    ids = [await client("xadd", "orders", {"n": number}) for number in range(3)]
    got = [entries(await consumer)[0][1][0][0] for consumer in consumers]
    assert got == ids


async def test_a_delayed_entry_wakes_a_client_although_every_client_is_blocked(
    store: UniformStore,
) -> None:
    # Given an entry that its consumer has delayed for ten seconds
    client, other = store.client(), store.client()
    await client("xgroup_create", "orders", "ops", id="0", mkstream=True)
    entry_id = await client("xadd", "orders", {"item": "tea"})
    await client("xreadgroup", "ops", "bill", {"orders": ">"})
    settle = ["XSETTLE", "orders", "ops", "bill", "FAIL", "DELAY", "10000", "IDS", "1"]
    await client("execute_command", *settle, entry_id)
    # When another consumer blocks without a limit to claim entries, and ten seconds pass
    read = [
        "XREADGROUP",
        "GROUP",
        "ops",
        "anna",
        "BLOCK",
        "0",
        "CLAIM",
        "0",
        "STREAMS",
        "orders",
        ">",
    ]
    reading = asyncio.create_task(other("execute_command", *read))
    await store.blocked(1)
    store.advance(10)
    # Then it gets the entry
    assert entry_id in str(await reading)


async def test_large_values_pass_unchanged(store: UniformStore) -> None:
    client = store.client(decode_responses=False)
    value = bytes(range(256)) * 40_000
    await client("xadd", "orders", {"scan": value}, id="1-1")
    assert await client("xrange", "orders") == [(b"1-1", {b"scan": value})]


async def test_concurrent_writers_lose_nothing(store: UniformStore) -> None:
    # Given eight writers that share a client
    client = store.client()

    async def write(writer: int) -> None:
        for number in range(50):
            await client("xadd", "orders", {"writer": writer, "number": number})

    # When they write concurrently
    await asyncio.gather(*(write(writer) for writer in range(8)))
    # Then all entries are there, those of each writer in order
    found = await client("xrange", "orders")
    assert len(found) == 400
    for writer in range(8):
        own = [int(f["number"]) for _id, f in found if f["writer"] == str(writer)]
        assert own == list(range(50))


async def test_a_connection_is_reused_after_an_error_reply(store: UniformStore) -> None:
    client = store.client(max_connections=1)
    with pytest.raises(redis.ResponseError, match="unknown command"):
        await client("execute_command", "NOSUCH", "x")
    with pytest.raises(redis.ResponseError, match="wrong number of arguments"):
        await client("execute_command", "XADD", "orders")
    assert await client("ping") is True
    assert store.node.clients.connections_seen == 1


async def test_a_database_is_selected_for_every_connection(store: UniformStore) -> None:
    client, other = store.client(db=3), store.client()
    await client("xadd", "orders", {"a": 1})
    assert await other("exists", "orders") == 0
    await other("select", 3)
    assert await client("exists", "orders") == 1


async def test_a_single_connection_client_keeps_its_connection(store: UniformStore) -> None:
    client = store.client(single_connection_client=True)
    await client("client_setname", "alone")
    assert await client("client_getname") == "alone"
    assert await client("client_getname") == "alone"


async def test_quit_closes_the_connection_and_the_next_call_opens_another(
    store: UniformStore,
) -> None:
    client = store.client(max_connections=1)
    await client("execute_command", "QUIT")
    assert await client("ping") is True
