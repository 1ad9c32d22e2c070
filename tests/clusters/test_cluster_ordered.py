"""Order by key on a cluster, while its shards change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import headwater
from headwater.groups.membership.member import Member
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.operation import Refused, perform
from headwater.groups.reading.ordered import read_new
from headwater.messages.keys import group_reader_key
from headwater.worker import App, Stream
from headwater.worker.store.connections import Connections
from tests.clusters.clusters import Cluster
from tests.clusters.ordered_flow import OrderedFlow, flowing_in_order
from tests.clusters.test_cluster_changes import hand_over, kill, kill_ahead
from tests.worker.apps import eventually, working
from tests.worker.test_order import Seen, Step, by_key
from tests.worker.test_order_groups import between

pytestmark = [pytest.mark.clusters, pytest.mark.slow]


@pytest.mark.parametrize("change", [kill, kill_ahead])
async def test_keys_keep_their_order_when_their_shard_fails_over(
    cluster: Cluster, change: Callable[[Cluster, str], Awaitable[None]]
) -> None:
    # Given messages of eight keys that a replica confirms
    async with flowing_in_order(cluster, wait=1) as flow:
        # When the stream's shard gets another primary
        await change(cluster, "steps")

        # Then the flow continues, and no confirmed message is lost or out of order
        await flow.more(200)


async def test_keys_keep_their_order_in_a_manual_failover(cluster: Cluster) -> None:
    async with flowing_in_order(cluster) as flow:
        await hand_over(cluster, "steps")
        await flow.more(200)


async def test_keys_keep_their_order_while_their_slot_moves(cluster: Cluster) -> None:
    async with flowing_in_order(cluster) as flow:
        for _round in range(2):
            owner = cluster.owner("steps")
            await asyncio.to_thread(cluster.move, "steps")
            assert cluster.owner("steps") is not owner
            await flow.more(200)


async def test_keys_keep_their_order_while_their_slot_takes_long_to_move(cluster: Cluster) -> None:
    async with flowing_in_order(cluster) as flow:
        loop = asyncio.get_running_loop()

        def some_more() -> None:
            """Send some messages between one key and the next."""
            asyncio.run_coroutine_threadsafe(_sent(flow, 40), loop).result()

        await asyncio.to_thread(cluster.move, "steps", between=some_more)
        await flow.more(200)


async def _sent(flow: OrderedFlow, count: int) -> None:
    def sent() -> int:
        return sum(map(len, flow.sent.values()))

    aim = sent() + count
    await eventually(lambda: sent() > aim)


async def test_the_address_of_one_node_is_enough_for_ordered_consumers(cluster: Cluster) -> None:
    # Given an app with the address of a node that does not own its stream
    url = cluster.other("steps").peer.url
    async with flowing_in_order(cluster, url=url) as flow:
        # When the stream's slot moves
        await asyncio.to_thread(cluster.move, "steps")

        # Then messages continue to flow, in order
        await flow.more(200)


async def test_partitions_on_different_nodes_keep_the_order_of_their_keys(cluster: Cluster) -> None:
    # Given a stream of three partitions on different nodes, and two workers
    app = App(cluster.url, name="test")
    parts: Stream[Step] = Stream("parts", Step, partitions=3, key=by_key)
    names = [f"parts.{{{number}}}" for number in range(3)]
    seen = Seen()

    @app.consumer(parts, group="g", order_by=by_key)
    async def handle(step: Step) -> None:
        seen.began(step)
        await asyncio.sleep(0)
        seen.ended(step)

    numbers = list(range(40))
    keys = [f"key-{n}" for n in range(9)]
    async with working(app), working(app):
        # When the slot of one partition moves while messages are sent
        moving = asyncio.create_task(asyncio.to_thread(cluster.move, names[0]))
        for number in numbers:
            await app.send_many(parts, [Step(key, number) for key in keys])
        await moving
        await eventually(lambda: sum(map(len, seen.order.values())) >= len(keys) * len(numbers))

    # Then every key was handled in order
    assert len({cluster.owner(name) for name in names}) > 1
    assert seen.order == dict.fromkeys(keys, numbers)
    assert seen.overlaps == 0


@pytest.mark.parametrize("first", ["steps", group_reader_key("steps", "g")])
async def test_a_reader_without_its_key_reads_nothing_while_stream_and_key_are_at_different_nodes(
    cluster: Cluster, first: str
) -> None:
    # Given the reader of a stream with an entry
    key = group_reader_key("steps", "g")
    connections = Connections(cluster.url)
    with headwater.connect(cluster.url) as look:
        look.xadd("steps", {"n": 1})
        look.xgroup_create("steps", "g", "0")
        look.set(key, "one")

        # When it loses its key between the check and the read, while the slot moves
        async def read_late() -> str:
            look.set(key, "one")
            async with connections.reading(home="steps") as client:
                member = Member("steps", "g", "one", 60_000, await perform(client, probe()))
                operation = between(read_new(member, limit=10), lambda: look.set(key, "two"))
                try:
                    return str(await perform(client, operation))
                except Refused as error:
                    return error.code

        outcomes: list[str] = []
        await asyncio.to_thread(
            cluster.move,
            "steps",
            between=lambda: outcomes.append(asyncio.run(read_late())),
            first=first,
        )

        # Then it gets no entries, whichever of the two moved first
        assert set(outcomes) <= {"[]", "TRYAGAIN"}
        pending: Any = look.xpending("steps", "g")
        assert pending["pending"] == 0
