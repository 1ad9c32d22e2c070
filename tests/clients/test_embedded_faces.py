"""A store answers alike through every face: in process and over TCP, sync and asyncio."""

from __future__ import annotations

import asyncio

import pytest
import redis

from tests.clients.faces import Place, entries

pytestmark = pytest.mark.slow


async def test_the_client_is_redis_pys_own_with_one_property_more(place: Place) -> None:
    face = place.face()
    kind = type(face.client)
    assert kind.__bases__ == ((redis.asyncio.Redis if place.asynchronous else redis.Redis),)
    assert [name for name in vars(kind) if not name.startswith("_")] == ["recovery"]
    assert await face("ping") is True


async def test_what_one_client_adds_another_reads(place: Place) -> None:
    writer, reader = place.face(), place.face()
    entry_id = await writer("xadd", "orders", {"item": "tea"})
    assert await reader("xrange", "orders") == [(entry_id, {"item": "tea"})]


async def test_a_pipeline_of_10_000_is_answered_in_order(place: Place) -> None:
    # Given 10,000 commands in one pipeline
    face = place.face()
    pipeline = face.client.pipeline(transaction=False)
    for number in range(10_000):
        pipeline.xadd("orders", {"n": number}, id=f"{number + 1}-0")
    # When it is executed
    ids = await face.call(pipeline.execute)
    # Then each has its answer, in order
    assert ids == [f"{number + 1}-0" for number in range(10_000)]
    assert await face("xlen", "orders") == 10_000


async def test_a_transaction_runs_as_one(place: Place) -> None:
    face = place.face()
    pipeline = face.client.pipeline(transaction=True)
    pipeline.xadd("orders", {"a": 1}, id="1-1").xlen("orders").xadd("bills", {"b": 2}, id="2-1")
    assert await face.call(pipeline.execute) == ["1-1", 1, "2-1"]


async def test_an_error_in_a_pipeline_is_its_own(place: Place) -> None:
    face = place.face()
    await face("set", "word", "x")
    pipeline = face.client.pipeline(transaction=False)
    pipeline.xadd("orders", {"a": 1}, id="1-1").xlen("word").xlen("orders")
    first, second, third = await face.call(pipeline.execute, raise_on_error=False)
    assert (first, third) == ("1-1", 1)
    assert isinstance(second, redis.ResponseError)
    assert "WRONGTYPE" in str(second)


async def test_a_watched_key_that_changes_breaks_the_transaction(place: Place) -> None:
    # Given a client that watches a key
    face, other = place.face(), place.face()
    pipeline = face.client.pipeline()
    await face.call(pipeline.watch, "orders")
    pipeline.multi()
    pipeline.xadd("bills", {"a": 1})
    # When another changes it
    await other("xadd", "orders", {"b": 1})
    # Then nothing of the transaction runs
    with pytest.raises(redis.WatchError):
        await face.call(pipeline.execute)
    assert await other("exists", "bills") == 0


async def test_block_ends_when_its_time_is_over(place: Place) -> None:
    # Given a client that waits for five seconds
    face = place.face()
    reading = asyncio.create_task(face("xread", {"orders": "$"}, block=5000))
    await place.blocked(1)
    # When they are not quite over, it waits
    place.advance(4.999)
    assert place.node.blocked.waiting.count == 1
    # When they are, it is answered
    place.advance(0.001)
    assert not await reading


async def test_block_ends_when_another_client_adds(place: Place) -> None:
    # Given a client that waits for ever
    face, other = place.face(), place.face()
    reading = asyncio.create_task(face("xread", {"orders": "$"}, block=0))
    await place.blocked(1)
    # When another adds, then the first is answered
    entry_id = await other("xadd", "orders", {"item": "tea"})
    assert entries(await reading) == [("orders", [(entry_id, {"item": "tea"})])]


async def test_waiting_clients_are_served_first_come_first_served(place: Place) -> None:
    # Given a group and three consumers that wait in this order
    face = place.face()
    await face("xgroup_create", "orders", "ops", id="$", mkstream=True)
    consumers = []
    for number in range(3):
        consumers.append(
            asyncio.create_task(
                place.face()("xreadgroup", "ops", f"c{number}", {"orders": ">"}, block=0)
            )
        )
        await place.blocked(number + 1)
    # When three entries are added, then each has one, in order
    ids = [await face("xadd", "orders", {"n": number}) for number in range(3)]
    got = [entries(await consumer)[0][1][0][0] for consumer in consumers]
    assert got == ids


async def test_a_delayed_entry_wakes_whoever_waits_although_every_client_waits(
    place: Place,
) -> None:
    # Given an entry that its consumer has put off for ten seconds
    face, other = place.face(), place.face()
    await face("xgroup_create", "orders", "ops", id="0", mkstream=True)
    entry_id = await face("xadd", "orders", {"item": "tea"})
    await face("xreadgroup", "ops", "bill", {"orders": ">"})
    settle = ["XSETTLE", "orders", "ops", "bill", "FAIL", "DELAY", "10000", "IDS", "1"]
    await face("execute_command", *settle, entry_id)
    # When a consumer that claims what is released waits for ever, and the time is over
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
    await place.blocked(1)
    place.advance(10)
    # Then it gets the entry
    assert entry_id in str(await reading)


async def test_large_values_pass_unchanged(place: Place) -> None:
    face = place.face(decode_responses=False)
    value = bytes(range(256)) * 40_000
    await face("xadd", "orders", {"scan": value}, id="1-1")
    assert await face("xrange", "orders") == [(b"1-1", {b"scan": value})]


async def test_many_at_once_lose_nothing(place: Place) -> None:
    # Given eight writers of one client
    face = place.face()

    async def write(writer: int) -> None:
        for number in range(50):
            await face("xadd", "orders", {"writer": writer, "number": number})

    # When they write at once
    await asyncio.gather(*(write(writer) for writer in range(8)))
    # Then everything is there, each writer's own in order
    found = await face("xrange", "orders")
    assert len(found) == 400
    for writer in range(8):
        own = [int(f["number"]) for _id, f in found if f["writer"] == str(writer)]
        assert own == list(range(50))


async def test_an_error_reply_leaves_the_connection_in_use(place: Place) -> None:
    face = place.face(max_connections=1)
    with pytest.raises(redis.ResponseError, match="unknown command"):
        await face("execute_command", "NOSUCH", "x")
    with pytest.raises(redis.ResponseError, match="wrong number of arguments"):
        await face("execute_command", "XADD", "orders")
    assert await face("ping") is True
    assert place.node.clients.connections_seen == 1


async def test_a_database_is_chosen_for_every_connection(place: Place) -> None:
    face, other = place.face(db=3), place.face()
    await face("xadd", "orders", {"a": 1})
    assert await other("exists", "orders") == 0
    await other("select", 3)
    assert await face("exists", "orders") == 1


async def test_a_single_connection_client_keeps_its_connection(place: Place) -> None:
    face = place.face(single_connection_client=True)
    await face("client_setname", "alone")
    assert await face("client_getname") == "alone"
    assert await face("client_getname") == "alone"


async def test_quit_ends_the_connection_and_the_next_call_makes_another(place: Place) -> None:
    face = place.face(max_connections=1)
    await face("execute_command", "QUIT")
    assert await face("ping") is True
