"""Publishing and subscribing with redis-py: embedded and over TCP, sync and asyncio, RESP2 and RESP3."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import redis

import headwater
from headwater.client.embedded_opening import node_of
from headwater.server.services.pubsub import PubSub
from tests.clients.uniform import UniformClient, UniformStore
from tests.waiting import in_time

NEWS = {"type": "message", "pattern": None, "channel": "news"}


async def listening(client: UniformClient, *channels: str, patterns: tuple[str, ...] = ()) -> Any:
    """Return a subscription whose confirmations have been read."""
    listener = client.redis.pubsub()
    if channels:
        await client.call(listener.subscribe, *channels)
    if patterns:
        await client.call(listener.psubscribe, *patterns)
    for _ in (*channels, *patterns):
        confirmation = await client.call(listener.get_message, timeout=30)
        assert confirmation["type"] in {"subscribe", "psubscribe"}
    return listener


async def close(client: UniformClient, listener: Any) -> None:
    await client.call(listener.aclose if client.asynchronous else listener.close)


async def test_a_subscriber_receives_a_message(store: UniformStore) -> None:
    # Given a subscriber of a channel and of a pattern
    publisher, client = store.client(), store.client()
    listener = await listening(client, "news", patterns=("n*",))
    # When a message is published
    assert await publisher("publish", "news", "tea is ready") == 2
    # Then it is received twice
    first = await client.call(listener.get_message, timeout=30)
    second = await client.call(listener.get_message, timeout=30)
    assert first == {**NEWS, "data": "tea is ready"}
    assert second == {**first, "type": "pmessage", "pattern": "n*"}
    await close(client, listener)


async def test_without_messages_there_is_nothing_to_read(store: UniformStore) -> None:
    client = store.client()
    listener = await listening(client, "news")
    assert await client.call(listener.get_message, timeout=0.01) is None
    assert await client.call(listener.get_message, timeout=0) is None
    await close(client, listener)


async def test_a_waiting_subscriber_is_woken_by_a_message(store: UniformStore) -> None:
    # Given a subscriber that waits without a limit
    publisher, client = store.client(), store.client()
    listener = await listening(client, "news")
    waiting = asyncio.ensure_future(client.call(listener.get_message, timeout=None))
    for number in range(3):
        # When another client publishes, then it receives the message
        assert await publisher("publish", "news", number) == 1
        assert await waiting == {**NEWS, "data": str(number)}
        waiting = asyncio.ensure_future(client.call(listener.get_message, timeout=None))
    await publisher("publish", "news", "last")
    await waiting
    await close(client, listener)


async def test_a_subscription_ends_with_its_connection(store: UniformStore) -> None:
    publisher, client = store.client(), store.client()
    listener = await listening(client, "news", "more", patterns=("n*",))
    assert await publisher("pubsub_channels") == ["news", "more"]
    await close(client, listener)
    await in_time(lambda: not store.node.services.pubsub.channels)
    assert await publisher("publish", "news", "x") == 0
    assert await publisher("pubsub_numpat") == 0


async def test_messages_of_a_transaction_are_received(store: UniformStore) -> None:
    publisher, client = store.client(), store.client()
    listener = await listening(client, "news")
    pipeline = publisher.redis.pipeline(transaction=True)
    pipeline.publish("news", "first").xadd("orders", {"a": 1}, id="1-1").publish("news", "second")
    assert await publisher.call(pipeline.execute) == [1, "1-1", 1]
    for word in ("first", "second"):
        assert await client.call(listener.get_message, timeout=30) == {**NEWS, "data": word}
    await close(client, listener)


async def test_keyspace_events_are_received(store: UniformStore) -> None:
    # Given a subscriber of stream events and expirations
    writer, client = store.client(), store.client()
    await writer("config_set", "notify-keyspace-events", "Etx")
    assert await writer("config_get", "notify-keyspace-events") == {"notify-keyspace-events": "xtE"}
    listener = await listening(client, patterns=("__key*__:*",))
    # When these events happen
    await writer("xadd", "orders", {"item": "tea"})
    await writer("pexpire", "orders", 50)
    await writer("set", "quiet", "x")
    store.advance(1)
    # Then it receives them in this order
    for event in ("xadd", "expired"):
        assert await client.call(listener.get_message, timeout=30) == {
            "type": "pmessage",
            "pattern": "__key*__:*",
            "channel": f"__keyevent@0__:{event}",
            "data": "orders",
        }
    assert await client.call(listener.get_message, timeout=0) is None
    await close(client, listener)


async def test_a_killed_connection_subscribes_again(store: UniformStore) -> None:
    # Given a subscriber whose connection is closed
    publisher, client = store.client(), store.client()
    listener = await listening(client, "news")
    (line,) = [one for one in await publisher("client_list") if one["sub"] == "1"]
    assert line["flags"] == "P"
    assert await publisher("client_kill_filter", _id=line["id"]) == 1
    # When it reads again, then it has subscribed again
    confirmation = None
    while confirmation is None:
        confirmation = await client.call(listener.get_message, timeout=1)
    assert confirmation["type"] == "subscribe"
    assert await publisher("publish", "news", "x") == 1
    assert await client.call(listener.get_message, timeout=30) == {**NEWS, "data": "x"}
    await close(client, listener)


# --- threads ---------------------------------------------------------------------------------------


def test_redis_pys_thread_receives_everything_in_order(client: redis.Redis) -> None:
    # Given redis-py's thread for subscriptions
    received: list[str] = []
    done = threading.Event()

    def receive(message: dict[str, Any]) -> None:
        received.append(message["data"])
        if message["data"] == "end":
            done.set()

    listener = client.pubsub()
    listener.subscribe(news=receive)
    thread = listener.run_in_thread(sleep_time=30)
    # When this thread publishes
    for number in range(500):
        client.publish("news", str(number))
    client.publish("news", "end")
    # Then it receives all messages
    assert done.wait(30)
    assert received == [*map(str, range(500)), "end"]
    thread.stop()
    client.publish("news", "wake up")  # out of its 30 seconds
    thread.join(30)
    assert not thread.is_alive()


def test_listen_is_an_iterator_that_waits(
    client: redis.Redis, submit: Callable[..., Future[Any]]
) -> None:
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("news")

    def three() -> list[str]:
        words = listener.listen()
        return [next(words)["data"] for _ in range(3)]

    hearing = submit(three)
    for number in range(3):
        client.publish("news", number)
    assert hearing.result(30) == ["0", "1", "2"]
    listener.close()


def test_a_waiting_subscriber_does_not_poll(client: redis.Redis) -> None:
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("news")
    assert listener.get_message(timeout=0.01) is None
    turns = node_of(client).records.turn
    assert listener.get_message(timeout=0.2) is None
    assert node_of(client).records.turn == turns
    listener.close()


async def test_threads_and_loops_receive_each_others_messages(
    url: str, client: redis.Redis, submit: Callable[..., Future[Any]]
) -> None:
    async with headwater.aio.connect(url, decode_responses=True) as other:
        # A thread subscribes, a loop publishes
        in_thread = client.pubsub(ignore_subscribe_messages=True)
        in_thread.subscribe("news")
        assert in_thread.get_message(timeout=0) is None
        waiting = submit(in_thread.get_message, timeout=None)
        await other.publish("news", "from a loop")
        assert waiting.result(30)["data"] == "from a loop"
        in_thread.close()
        # A loop subscribes, a thread publishes
        in_loop = other.pubsub(ignore_subscribe_messages=True)
        await in_loop.subscribe("news")
        assert await in_loop.get_message(timeout=0.01) is None
        hearing = asyncio.ensure_future(in_loop.get_message(timeout=None))
        assert submit(client.publish, "news", "from a thread").result(30) == 1
        assert (await hearing)["data"] == "from a thread"
        await in_loop.aclose()


def test_the_only_client_receives_an_expiration_in_time(client: redis.Redis) -> None:
    client.config_set("notify-keyspace-events", "Ex")
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.psubscribe("__keyevent@*__:expired")
    client.set("offer", "tea", px=30)
    assert next(listener.listen())["data"] == "offer"
    listener.close()


async def test_the_only_asyncio_client_receives_an_expiration_in_time(url: str) -> None:
    async with headwater.aio.connect(url, decode_responses=True) as client:
        await client.config_set("notify-keyspace-events", "Ex")
        listener = client.pubsub(ignore_subscribe_messages=True)
        await listener.psubscribe("__keyevent@*__:expired")
        await client.set("offer", "tea", px=30)
        async for message in listener.listen():
            assert message["data"] == "offer"
            break
        await listener.aclose()


# --- subscribers that do not read -------------------------------------------------------------------


def test_a_subscriber_that_does_not_read_is_disconnected(url: str) -> None:
    # Given a subscriber that does not read
    with headwater.connect(f"{url}?client-output-buffer-limit=pubsub%20100kb%200%200") as client:
        listener = client.pubsub()
        listener.subscribe("news")
        assert listener.get_message(timeout=1)
        # When more is published than the buffer limit, then it is disconnected
        counts = [client.publish("news", b"x" * 10_000) for _ in range(20)]
        assert counts[:10] == [1] * 10
        assert counts[-1] == 0
        assert client.ping()
        listener.close()


async def test_an_asyncio_subscriber_that_does_not_read_is_disconnected(url: str) -> None:
    async with headwater.aio.connect(
        f"{url}?client-output-buffer-limit=pubsub%20400kb%200%200"
    ) as client:
        listener = client.pubsub()
        await listener.subscribe("news")
        assert await listener.get_message(timeout=1)
        counts = [await client.publish("news", b"x" * 10_000) for _ in range(100)]
        assert counts[:40] == [1] * 40
        assert counts[-1] == 0
        await listener.aclose()


def test_a_subscriber_that_reads_may_receive_any_amount(url: str) -> None:
    with headwater.connect(f"{url}?client-output-buffer-limit=pubsub%20100kb%200%200") as client:
        listener = client.pubsub(ignore_subscribe_messages=True)
        listener.subscribe("news")
        for _ in range(50):
            assert client.publish("news", b"x" * 10_000) == 1
            message = listener.get_message(timeout=30) or listener.get_message(timeout=30)
            assert message is not None
            assert len(message["data"]) == 10_000
        listener.close()


async def test_an_asyncio_subscriber_that_reads_may_receive_any_amount(url: str) -> None:
    # Given messages of many sizes, in total more than a stream reader buffers
    async with headwater.aio.connect(url) as client:
        listener = client.pubsub(ignore_subscribe_messages=True)
        await listener.subscribe("news")
        assert await listener.get_message(timeout=0.01) is None
        sizes = [1, 70_000, 200_000, 10, 1_000_000, 65_536, 65_537, 131_072] * 3
        for size in sizes:
            assert await client.publish("news", b"x" * size) == 1
        # Then all are received in order
        for size in sizes:
            message = await listener.get_message(timeout=30)
            assert len(message["data"]) == size
        await listener.aclose()


def test_a_closed_subscriber_leaves_nothing_in_the_store(url: str) -> None:
    with headwater.connect(url) as client:
        hub: PubSub = node_of(client).services.pubsub
        listener = client.pubsub()
        listener.subscribe("news")
        listener.psubscribe("n*")
        listener.ssubscribe("shard")
        assert (len(hub.channels), len(hub.patterns.by_pattern)) == (1, 1)
        listener.close()
        assert not hub.channels
        assert not hub.shard_channels
        assert not hub.patterns.by_pattern
