"""All consumers of a process share its connections: few of them, and few calls while nothing happens."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headwater.worker import Batch, Stream
from headwater.worker.running import Running
from tests.worker.apps import Order, Store, elapsed, eventually, working
from tests.worker.processes import supervised

COUNT = 50


def streams(count: int = COUNT) -> list[Stream[Order]]:
    return [Stream(f"orders-{number}", Order) for number in range(count)]


class Shop:
    """A worker with a consumer for each stream, and what they have handled."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.app = store.app()
        self.handled: dict[str, list[int]] = defaultdict(list)
        self.holding = asyncio.Event()

    def consumers(self, found: Sequence[Stream[Order]], **options: Any) -> None:
        for stream in found:
            self.consumer(stream, **options)

    def consumer(self, stream: Stream[Order], group: str = "g", **options: Any) -> None:
        name = stream.name

        @self.app.consumer(stream, group=group, **options)
        async def handle(order: Order) -> None:
            if order.id < 0:
                await self.holding.wait()
            self.handled[name].append(order.id)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Running]:
        """Run the worker, and enter the block when every consumer waits for messages."""
        await self.store.look.ping()  # opens this test's connection
        async with working(self.app) as running:
            await eventually(lambda: all(loop.in_flight.member for loop in running.loops.values()))
            await eventually(lambda: all(loop.fetcher._in_read for loop in running.loops.values()))
            yield running
            self.holding.set()

    async def send(self, stream: Stream[Order], *numbers: int) -> None:
        for number in numbers:
            await self.store.look.xadd(stream.name, {"id": number})

    async def everywhere(self, found: Sequence[Stream[Order]], number: int) -> None:
        """Send a message to each stream, and wait until all are handled."""
        for stream in found:
            await self.send(stream, number)
        await eventually(lambda: all(number in self.handled[stream.name] for stream in found))

    async def connections(self) -> int:
        """How many connections the store has that are younger than this test's: other tests may use it too."""
        clients: Any = await self.store.look.client_list()
        own = await self.store.look.client_id()
        return sum(int(one["id"]) > own for one in clients)


async def calls(store: Store) -> dict[str, int]:
    """How often each command was called so far, those of scripts included."""
    found: Any = await store.look.info("commandstats")
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in found.items()}


async def test_the_consumers_of_a_process_share_three_connections(any_store: Store) -> None:
    # Given one group name on fifty streams
    shop, found = Shop(any_store), streams()
    shop.consumers(found, lease="300ms", claim_after="1s")
    async with shop.open():
        # When each stream gets a message, and one of them is running for longer than a third of its lease
        await shop.everywhere(found, 1)
        await shop.send(found[7], -1)
        await eventually(elapsed(0.3))
        # Then there is a connection for the blocked read, one to settle, and one for leases
        assert await shop.connections() == 3
    assert await shop.connections() == 0
    assert all(shop.handled[stream.name][0] == 1 for stream in found)


async def test_each_group_name_has_a_blocked_read_of_its_own(store: Store) -> None:
    shop, found = Shop(store), streams(6)
    shop.consumers(found[:3], lease="10s")
    shop.consumers(found[3:], lease="10s", group="other")
    async with shop.open():
        await shop.everywhere(found, 1)
        assert await shop.connections() <= 4


async def test_partitions_ordered_consumers_and_batches_share_connections(store: Store) -> None:
    # Given a stream of 16 partitions, in order, and twenty streams in batches
    shop, batched = Shop(store), streams(20)
    parts: Stream[Order] = Stream("parts", Order, partitions=16, key=lambda order: order.id)
    seen: dict[str, set[int]] = defaultdict(set)

    @shop.app.consumer(parts, group="g", order_by=lambda order: order.id)
    async def in_order(order: Order) -> None:
        seen["parts"].add(order.id)

    for stream in batched:

        @shop.app.batch(stream, group="g", size=2, linger="1ms")
        async def load(rows: Batch[Order], name: str = stream.name) -> None:
            seen[name] |= {row.id for row in rows}

    async with working(shop.app):
        async with store.app() as other:
            await other.send_many(parts, [Order(number) for number in range(40)])
        await eventually(lambda: len(seen["parts"]) == 40)
        for stream in batched:
            await shop.send(stream, 1, 2, 3)
        await eventually(lambda: all(len(seen[stream.name]) == 3 for stream in batched))
        # Then there are five connections: two blocked reads, one to settle, one for leases, and one for the
        # transactions of the ordered consumers
        clients = await store.look.client_list()
        assert await shop.connections() <= 5, clients


@pytest.mark.slow
async def test_idle_streams_cost_few_calls(any_store: Store) -> None:
    # Given fifty streams that have been idle since their first backup
    shop, found = Shop(any_store), streams()
    shop.consumers(found)
    async with shop.open():
        await shop.everywhere(found, 1)
        await eventually(elapsed(4.5))
        before = await calls(any_store)
        # When two seconds pass
        await eventually(elapsed(2.0))
        after = await calls(any_store)
    # Then one blocked read, one look for scheduled messages a second, and the time of each group's backup was sent
    called = {name: count - before.get(name, 0) for name, count in after.items()}
    assert called.get("xreadgroup", 0) <= 8
    assert called.get("exists", 0) <= 4
    assert called.get("hset", 0) <= 2 * COUNT
    assert called.get("multi", 0) <= 5
    assert sum(count for name, count in called.items() if name != "xpending") <= 8 * COUNT


async def test_a_full_consumer_does_not_hold_up_others_and_continues_when_it_has_room(
    any_store: Store,
) -> None:
    # Given a consumer whose only slot is busy
    shop, found = Shop(any_store), streams(8)
    shop.consumer(found[0], concurrency=1, prefetch=1)
    shop.consumers(found[1:])
    async with shop.open() as running:
        await shop.send(found[0], -1, 2, 3)
        await eventually(lambda: running.loops[shop.app.consumers[0]].pool.running)
        # When the others get messages, then they are handled, each in the order of its stream
        for stream in found[1:]:
            await shop.send(stream, *range(20))
        await eventually(
            lambda: all(shop.handled[one.name] == list(range(20)) for one in found[1:])
        )
        assert len(running.loops[shop.app.consumers[0]].in_flight.owned) == 1
        # When its slot becomes free while nothing else arrives, then it continues
        shop.holding.set()
        await eventually(lambda: shop.handled[found[0].name] == [-1, 2, 3])


@pytest.mark.slow
async def test_a_backlog_of_one_stream_does_not_starve_the_others(any_store: Store) -> None:
    shop, found = Shop(any_store), streams(4)
    shop.consumers(found, concurrency=2, prefetch=4)
    async with store_pipeline(any_store, found[0], 2_000), shop.open():
        for stream in found[1:]:
            await shop.send(stream, 1)
        await eventually(lambda: all(shop.handled[stream.name] for stream in found[1:]))
        assert len(shop.handled[found[0].name]) <= 2_000
        await eventually(lambda: len(shop.handled[found[0].name]) == 2_000)


@asynccontextmanager
async def store_pipeline(store: Store, stream: Stream[Order], count: int) -> AsyncIterator[None]:
    pipeline = store.look.pipeline(transaction=False)
    for number in range(count):
        pipeline.xadd(stream.name, {"id": number})
    await pipeline.execute()
    yield


@pytest.mark.parametrize("how", ["group destroyed", "stream deleted", "another type", "no right"])
async def test_trouble_of_one_stream_does_not_reach_the_others(any_store: Store, how: str) -> None:
    # Given ten streams that one blocked read waits for
    look = any_store.look
    await look.execute_command(
        "ACL", "SETUSER", "worker", "reset", "on", "nopass", "+@all", "~*", "&*"
    )
    shop, found = Shop(any_store), streams(10)
    shop.app.use_store(any_store.url.replace("redis://", "redis://worker:any@"))
    shop.consumers(found)
    broken, others = found[4], found[:4] + found[5:]
    try:
        async with shop.open():
            await shop.everywhere(found, 1)
            # When one of them breaks
            if how == "group destroyed":
                await look.xgroup_destroy(broken.name, "g")
            elif how == "stream deleted":
                await look.delete(broken.name)
            elif how == "another type":
                await look.set(broken.name, "text")
            else:
                patterns = [f"~{stream.name}" for stream in others]
                await look.execute_command(
                    "ACL", "SETUSER", "worker", "resetkeys", *patterns, "~{*"
                )
            # Then the others go on, again and again
            for number in range(2, 6):
                await shop.everywhere(others, number)
            # And this one goes on when it is whole again
            if how == "another type":
                await look.delete(broken.name)
            elif how == "no right":
                await look.execute_command("ACL", "SETUSER", "worker", "~*")
            await shop.everywhere([broken], 9)
            await shop.everywhere(others, 9)
    finally:
        await look.execute_command("ACL", "DELUSER", "worker")


async def test_every_stream_goes_on_after_the_connections_were_lost(any_store: Store) -> None:
    shop, found = Shop(any_store), streams(10)
    shop.consumers(found)
    async with shop.open():
        await shop.everywhere(found, 1)
        await any_store.look.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await shop.everywhere(found, 2)
        assert all(numbers == [1, 2] for numbers in shop.handled.values())
        assert await shop.connections() <= 3


@pytest.mark.slow
async def test_a_dead_worker_is_claimed_from_on_idle_streams(any_store: Store) -> None:
    # Given a consumer that owns an entry of three idle streams, and is silent
    shop, found = Shop(any_store), streams(12)
    for stream in found[:3]:
        await shop.send(stream, 1)
        await any_store.look.xgroup_create(stream.name, "g", "0")
        await any_store.look.xreadgroup("g", "dead", {stream.name: ">"})
    shop.consumers(found, claim_after="400ms", lease="100ms")
    async with shop.open():
        # Then this worker handles them, although nothing else arrives
        await eventually(lambda: all(shop.handled[stream.name] == [1] for stream in found[:3]))


async def test_a_user_who_may_not_end_blocked_reads_gets_messages_all_the_same(
    store: Store,
) -> None:
    look = store.look
    await look.execute_command(
        "ACL", "SETUSER", "worker", "reset", "on", "nopass", "+@all", "-client", "~*", "&*"
    )
    shop, found = Shop(store), streams(5)
    shop.app.use_store(store.url.replace("redis://", "redis://worker:any@"))
    shop.consumers(found, concurrency=1, prefetch=1)
    try:
        async with shop.open():
            for number in range(3):
                await shop.everywhere(found, number)
    finally:
        await look.execute_command("ACL", "DELUSER", "worker")


@pytest.mark.slow
async def test_the_quarantine_process_has_no_connection_without_a_suspect(store: Store) -> None:
    # Given a supervisor with one worker process
    with supervised(store.url, "--workers", "1"):
        await store.look.xadd("orders", {"id": 1})
        await eventually(store.settled)
        await eventually(elapsed(0.5))
        clients: Any = await store.look.client_list()
        # Then one consumer name has connections
        names = {one["name"] for one in clients} - {""}
        assert len(names) == 1


@pytest.mark.slow
async def test_a_thousand_streams_share_three_connections(store: Store) -> None:
    # Given a thousand streams
    shop, found = Shop(store), streams(1_000)
    shop.consumers(found, concurrency=2)
    async with shop.open():
        # When each gets a message, then each is handled once
        await shop.everywhere(found, 1)
        assert all(shop.handled[stream.name] == [1] for stream in found)
        assert await shop.connections() <= 3
    # And at the stop, every group has lost its consumer
    for stream in found[::100]:
        assert await store.consumers(stream=stream.name) == []
