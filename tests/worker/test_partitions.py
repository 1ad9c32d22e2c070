"""`Stream(…, partitions=n)` is split by key, so that several processes can read it in order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from headwater.errors import DeclarationError, EncodeError, HeadwaterError
from headwater.worker import App, Batch, Dead, Delivery, Stream
from tests.worker.apps import Store, eventually, worker, working

PARTITIONS = 4
NAMES = [f"moves.{{{number}}}" for number in range(PARTITIONS)]


class Move(msgspec.Struct):
    key: str
    number: int


def by_key(move: Move) -> str:
    return move.key


moves = Stream("moves", Move, partitions=PARTITIONS, key=by_key)
totals = Stream("totals", Move, partitions=PARTITIONS, key=lambda move: "all the same")


def memory_app() -> App:
    return App("headwater://memory", name="test")


async def keys_of(store: Store, name: str) -> set[str]:
    return {move.key for move in await store.results(Stream(name, Move))}


async def all_settled(store: Store) -> bool:
    """Whether every partition that has entries is settled."""
    there = [name for name in NAMES if await store.look.xlen(name)]
    return all([await store.settled(stream=name) for name in there])


async def test_a_stable_hash_of_the_key_chooses_the_partition(
    store: Store,
) -> None:
    # When messages of many keys are added
    async with store.app() as app:
        await app.send_many(moves, [Move(str(key), n) for n in range(2) for key in range(20)])
        await app.send(moves, Move("0", 2), dedupe="move-2")

    # Then each key is in one partition, chosen by CRC-32
    found = [await keys_of(store, name) for name in NAMES]
    assert sum(len(keys) for keys in found) == 20
    assert found[0] == {"4", "6", "14", "16"}
    assert not await store.look.exists("moves")


async def test_a_consumer_reads_all_partitions_and_results_keep_the_partition_number(
    store: Store,
) -> None:
    # Given a stream of results with the same number of partitions
    app = store.app()

    @app.consumer(moves, group="g", into=totals)
    async def count(move: Move, delivery: Delivery) -> Move:
        assert delivery.stream in NAMES
        return move

    # When messages of many keys are handled
    async with working(app):
        await moves.send_many([Move(str(key), 0) for key in range(20)])
        await eventually(lambda: all_settled(store))

    # Then each result is in the partition of its message, whatever its own key is
    for number, name in enumerate(NAMES):
        assert await keys_of(store, f"totals.{{{number}}}") == await keys_of(store, name)


@pytest.mark.slow
async def test_each_partition_of_an_ordered_group_is_read_by_one_process(store: Store) -> None:
    # Given two processes
    app, order = store.app(), defaultdict(list)
    running: set[str] = set()

    @app.consumer(moves, group="g", order_by=moves.key)
    async def handle(move: Move) -> None:
        assert move.key not in running
        running.add(move.key)
        await asyncio.sleep(0)
        running.discard(move.key)
        order[move.key].append(move.number)

    async with working(app) as first:
        second = worker(app)
        second.start()
        await moves.send_many([Move(str(key), n) for n in range(5) for key in range(10)])
        await eventually(lambda: all_settled(store))

        # When one of them stops, then the other reads all partitions
        await first.stop(5)
        await moves.send_many([Move(str(key), n) for n in range(5, 10) for key in range(10)])
        await eventually(lambda: all_settled(store))
        await second.stop(5)
    assert order == {str(key): list(range(10)) for key in range(10)}


async def test_each_partition_has_its_own_dead_letters(store: Store, run_headwater: Any) -> None:
    app = store.app()

    @app.consumer(moves, group="g")
    async def handle(move: Move) -> None:
        raise Dead("unknown customer")

    async with working(app):
        await moves.send(Move("4", 17))
        (letter,) = await eventually(lambda: store.dead(NAMES[0]))
    assert letter.stream == NAMES[0]
    listed = await asyncio.to_thread(run_headwater, "dead", "list", NAMES[0], "--url", store.url)
    assert "unknown customer" in listed


async def test_app_test_treats_all_partitions_as_one_stream() -> None:
    app = memory_app()

    @app.consumer(moves, group="g", into=totals)
    async def handle(move: Move) -> Move:
        if move.number == 1:
            raise Dead("unknown customer")
        if move.number == 2:
            await asyncio.Event().wait()
        return move

    async with app.test() as t:
        await t.send(moves, *(Move(str(key), key % 3) for key in range(6)))
        await t.advance("10ms")
        assert len(t.results(moves)) == 6
        assert len(t.results(totals)) == len(t.dead(moves)) == len(t.pending(handle)) == 2
        assert t.deliveries(handle) == [1] * 6
        assert all(name.startswith("moves.{") for name in t.pending(handle))
        t.crash(handle)
        await t.advance("31s")
        assert t.deliveries(handle) == [1] * 6 + [2, 2]


async def test_a_scheduled_message_waits_in_its_partition_and_is_cancelled_there() -> None:
    # Given a consumer of a partitioned stream, and two scheduled messages
    app, handled = memory_app(), []

    @app.consumer(moves, group="g")
    async def handle(move: Move) -> None:
        handled.append(move.number)

    async with app.test() as t:
        kept = await moves.send(Move("0", 1), after="1m")
        cancelled = await moves.send(Move("1", 2), after="1m")

        # When one is cancelled by the object that send returned, because an id does not name a partition
        assert {kept.stream, cancelled.stream} <= set(NAMES)
        with pytest.raises(HeadwaterError, match="which partition of 'moves' has the message"):
            await moves.cancel(cancelled.id)
        assert await cancelled.cancel()
        await t.advance("61s")

        # Then the other is published to its partition
        assert handled == [1]


async def test_a_batch_has_messages_of_one_partition() -> None:
    app, batches = memory_app(), []

    @app.batch(moves, group="g", size=10)
    async def load(rows: Batch[Move]) -> None:
        batches.append({delivery.stream for delivery in rows.deliveries})

    async with app.test() as t:
        await t.send(moves, *(Move(str(key), 0) for key in range(12)))
        await t.advance("50ms")
        assert t.pending(load) == {}
    assert all(len(streams) == 1 for streams in batches)
    assert len(batches) == PARTITIONS


def test_a_key_of_an_unsupported_type_is_refused() -> None:
    for key in (1.5, None, True, ("a", 1)):
        stream = Stream("moves", Move, partitions=2, key=lambda _move, key=key: key)  # type: ignore[misc]
        with pytest.raises(EncodeError, match="cannot choose a partition"):
            stream.addition(Move("a", 1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partitions": 0, "key": by_key}, "must be from 1 to 1024"),
        ({"partitions": 1_025, "key": by_key}, "must be from 1 to 1024"),
        ({"partitions": True, "key": by_key}, "partitions=True must be an integer"),
        ({"partitions": "4", "key": by_key}, "partitions='4' must be an integer"),
        ({"partitions": 4}, "partitions=4 needs key="),
        ({"partitions": 4, "key": "key"}, "partitions=4 needs key="),
        ({"key": by_key}, "the stream has none: add partitions="),
    ],
)
def test_invalid_partition_options_are_refused(options: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        Stream("moves", Move, **options)


def test_a_partitioned_stream_with_a_hash_tag_in_its_name_is_refused() -> None:
    with pytest.raises(DeclarationError, match="has a hash tag in its name"):
        Stream("{eu}.moves", Move, partitions=4, key=by_key)


def test_two_handlers_of_one_group_and_stream_are_refused() -> None:
    app = memory_app()

    async def one(move: Move) -> None: ...
    async def two(move: Move) -> None: ...

    app.consumer(moves, group="g")(one)
    with pytest.raises(DeclarationError, match="has the handler"):
        app.consumer(moves, group="g")(two)
    with pytest.raises(DeclarationError, match="is declared twice"):
        app.consumer(moves, group="h")(one)
