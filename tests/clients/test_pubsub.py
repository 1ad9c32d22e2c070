"""Publishing and listening through redis-py: in process and over TCP, sync and asyncio, RESP2 and 3."""

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
from tests.clients.faces import Face, Place, until

NEWS = {"type": "message", "pattern": None, "channel": "news"}


async def listening(face: Face, *channels: str, patterns: tuple[str, ...] = ()) -> Any:
    """A subscription whose confirmations have been read."""
    listener = face.client.pubsub()
    if channels:
        await face.call(listener.subscribe, *channels)
    if patterns:
        await face.call(listener.psubscribe, *patterns)
    for _ in (*channels, *patterns):
        confirmation = await face.call(listener.get_message, timeout=30)
        assert confirmation["type"] in {"subscribe", "psubscribe"}
    return listener


async def close(face: Face, listener: Any) -> None:
    await face.call(listener.aclose if face.asynchronous else listener.close)


async def test_a_message_reaches_who_listens(place: Place) -> None:
    # Given one who listens to a channel and to a pattern
    publisher, face = place.face(), place.face()
    listener = await listening(face, "news", patterns=("n*",))
    # When something is published
    assert await publisher("publish", "news", "tea is ready") == 2
    # Then it comes both ways
    first = await face.call(listener.get_message, timeout=30)
    second = await face.call(listener.get_message, timeout=30)
    assert first == {**NEWS, "data": "tea is ready"}
    assert second == {**first, "type": "pmessage", "pattern": "n*"}
    await close(face, listener)


async def test_nothing_comes_when_nothing_is_published(place: Place) -> None:
    face = place.face()
    listener = await listening(face, "news")
    assert await face.call(listener.get_message, timeout=0.01) is None
    assert await face.call(listener.get_message, timeout=0) is None
    await close(face, listener)


async def test_one_who_waits_is_woken_by_what_another_publishes(place: Place) -> None:
    # Given one who waits for ever
    publisher, face = place.face(), place.face()
    listener = await listening(face, "news")
    waiting = asyncio.ensure_future(face.call(listener.get_message, timeout=None))
    for number in range(3):
        # When another publishes, then it is there
        assert await publisher("publish", "news", number) == 1
        assert await waiting == {**NEWS, "data": str(number)}
        waiting = asyncio.ensure_future(face.call(listener.get_message, timeout=None))
    await publisher("publish", "news", "last")
    await waiting
    await close(face, listener)


async def test_a_listener_is_forgotten_when_it_goes(place: Place) -> None:
    publisher, face = place.face(), place.face()
    listener = await listening(face, "news", "more", patterns=("n*",))
    assert await publisher("pubsub_channels") == ["news", "more"]
    await close(face, listener)
    await until(lambda: not place.node.services.pubsub.channels)
    assert await publisher("publish", "news", "x") == 0
    assert await publisher("pubsub_numpat") == 0


async def test_a_message_within_a_transaction_comes_with_it(place: Place) -> None:
    publisher, face = place.face(), place.face()
    listener = await listening(face, "news")
    pipeline = publisher.client.pipeline(transaction=True)
    pipeline.publish("news", "first").xadd("orders", {"a": 1}, id="1-1").publish("news", "second")
    assert await publisher.call(pipeline.execute) == [1, "1-1", 1]
    for word in ("first", "second"):
        assert await face.call(listener.get_message, timeout=30) == {**NEWS, "data": word}
    await close(face, listener)


async def test_events_of_keys_are_heard(place: Place) -> None:
    # Given one who listens to what happens to streams and to what expires
    writer, face = place.face(), place.face()
    await writer("config_set", "notify-keyspace-events", "Etx")
    assert await writer("config_get", "notify-keyspace-events") == {"notify-keyspace-events": "xtE"}
    listener = await listening(face, patterns=("__key*__:*",))
    # When something does
    await writer("xadd", "orders", {"item": "tea"})
    await writer("pexpire", "orders", 50)
    await writer("set", "quiet", "x")
    place.advance(1)
    # Then it is told, in that order
    for event in ("xadd", "expired"):
        assert await face.call(listener.get_message, timeout=30) == {
            "type": "pmessage",
            "pattern": "__key*__:*",
            "channel": f"__keyevent@0__:{event}",
            "data": "orders",
        }
    assert await face.call(listener.get_message, timeout=0) is None
    await close(face, listener)


async def test_a_cut_connection_listens_again(place: Place) -> None:
    # Given a listener whose connection is ended
    publisher, face = place.face(), place.face()
    listener = await listening(face, "news")
    (line,) = [one for one in await publisher("client_list") if one["sub"] == "1"]
    assert line["flags"] == "P"
    assert await publisher("client_kill_filter", _id=line["id"]) == 1
    # When it reads again, then it has subscribed again
    confirmation = None
    while confirmation is None:
        confirmation = await face.call(listener.get_message, timeout=1)
    assert confirmation["type"] == "subscribe"
    assert await publisher("publish", "news", "x") == 1
    assert await face.call(listener.get_message, timeout=30) == {**NEWS, "data": "x"}
    await close(face, listener)


# --- threads ---------------------------------------------------------------------------------------


def test_a_loop_in_another_thread_hears_everything_in_order(client: redis.Redis) -> None:
    # Given redis-py's own thread that listens
    heard: list[str] = []
    done = threading.Event()

    def hear(message: dict[str, Any]) -> None:
        heard.append(message["data"])
        if message["data"] == "end":
            done.set()

    listener = client.pubsub()
    listener.subscribe(news=hear)
    thread = listener.run_in_thread(sleep_time=30)
    # When this one publishes
    for number in range(500):
        client.publish("news", str(number))
    client.publish("news", "end")
    # Then it hears all of it
    assert done.wait(30)
    assert heard == [*map(str, range(500)), "end"]
    thread.stop()
    client.publish("news", "wake up")  # out of its 30 seconds
    thread.join(30)
    assert not thread.is_alive()


def test_listen_is_an_iterator_that_waits(
    client: redis.Redis, elsewhere: Callable[..., Future[Any]]
) -> None:
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("news")

    def three() -> list[str]:
        words = listener.listen()
        return [next(words)["data"] for _ in range(3)]

    hearing = elsewhere(three)
    for number in range(3):
        client.publish("news", number)
    assert hearing.result(30) == ["0", "1", "2"]
    listener.close()


def test_who_waits_does_not_ask_again_and_again(client: redis.Redis) -> None:
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("news")
    assert listener.get_message(timeout=0.01) is None
    turns = node_of(client).records.turn
    assert listener.get_message(timeout=0.2) is None
    assert node_of(client).records.turn == turns
    listener.close()


async def test_threads_and_loops_hear_each_other(
    url: str, client: redis.Redis, elsewhere: Callable[..., Future[Any]]
) -> None:
    async with headwater.aio.connect(url, decode_responses=True) as other:
        # A thread listens, a loop publishes
        in_thread = client.pubsub(ignore_subscribe_messages=True)
        in_thread.subscribe("news")
        assert in_thread.get_message(timeout=0) is None
        waiting = elsewhere(in_thread.get_message, timeout=None)
        await other.publish("news", "from a loop")
        assert waiting.result(30)["data"] == "from a loop"
        in_thread.close()
        # A loop listens, a thread publishes
        in_loop = other.pubsub(ignore_subscribe_messages=True)
        await in_loop.subscribe("news")
        assert await in_loop.get_message(timeout=0.01) is None
        hearing = asyncio.ensure_future(in_loop.get_message(timeout=None))
        assert elsewhere(client.publish, "news", "from a thread").result(30) == 1
        assert (await hearing)["data"] == "from a thread"
        await in_loop.aclose()


def test_who_waits_alone_hears_in_time_that_a_key_has_expired(client: redis.Redis) -> None:
    client.config_set("notify-keyspace-events", "Ex")
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.psubscribe("__keyevent@*__:expired")
    client.set("offer", "tea", px=30)
    assert next(listener.listen())["data"] == "offer"
    listener.close()


async def test_a_loop_that_waits_alone_hears_in_time_that_a_key_has_expired(url: str) -> None:
    async with headwater.aio.connect(url, decode_responses=True) as client:
        await client.config_set("notify-keyspace-events", "Ex")
        listener = client.pubsub(ignore_subscribe_messages=True)
        await listener.psubscribe("__keyevent@*__:expired")
        await client.set("offer", "tea", px=30)
        async for message in listener.listen():
            assert message["data"] == "offer"
            break
        await listener.aclose()


# --- who does not read ------------------------------------------------------------------------------


def test_one_who_does_not_read_is_let_go(url: str) -> None:
    # Given one who listens and does not read
    with headwater.connect(f"{url}?client-output-buffer-limit=pubsub%20100kb%200%200") as client:
        listener = client.pubsub()
        listener.subscribe("news")
        assert listener.get_message(timeout=1)
        # When more is published than may wait, then it is gone
        counts = [client.publish("news", b"x" * 10_000) for _ in range(20)]
        assert counts[:10] == [1] * 10
        assert counts[-1] == 0
        assert client.ping()
        listener.close()


async def test_one_who_does_not_read_is_let_go_in_asyncio(url: str) -> None:
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


def test_one_who_reads_may_hear_any_amount(url: str) -> None:
    with headwater.connect(f"{url}?client-output-buffer-limit=pubsub%20100kb%200%200") as client:
        listener = client.pubsub(ignore_subscribe_messages=True)
        listener.subscribe("news")
        for _ in range(50):
            assert client.publish("news", b"x" * 10_000) == 1
            message = listener.get_message(timeout=30) or listener.get_message(timeout=30)
            assert message is not None
            assert len(message["data"]) == 10_000
        listener.close()


async def test_one_who_reads_in_asyncio_may_hear_any_amount(url: str) -> None:
    # Given messages of many sizes, more at once than a stream takes from its transport
    async with headwater.aio.connect(url) as client:
        listener = client.pubsub(ignore_subscribe_messages=True)
        await listener.subscribe("news")
        assert await listener.get_message(timeout=0.01) is None
        sizes = [1, 70_000, 200_000, 10, 1_000_000, 65_536, 65_537, 131_072] * 3
        for size in sizes:
            assert await client.publish("news", b"x" * size) == 1
        # Then all come, in order
        for size in sizes:
            message = await listener.get_message(timeout=30)
            assert len(message["data"]) == size
        await listener.aclose()


def test_a_store_remembers_no_listener_that_is_gone(url: str) -> None:
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
