"""The sink writes each row once, at whatever step its process is killed."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import redis

from headwater.errors import HeadwaterError
from headwater.spark.sink import appending
from headwater.spark.sink.appending import STAGE_SECONDS
from tests.spark.stores import Shop
from tests.spark.writes import (
    Killed,
    Writing,
    killed_after,
    killed_when,
    numbers,
    stages,
)

pytestmark = pytest.mark.peer

STORES = ("headwater", "redis-7.0", "redis-8.2", "valkey-9.1")

MARKER = "{s}:hw:sink:q"


# --- exactly once ---------------------------------------------------------------------------------


def test_epochs_are_written_in_the_order_of_their_partitions(shop: Shop, small: None) -> None:
    query = Writing(shop)

    query.epoch(0, numbers(7, 0, 13))
    query.epoch(1, numbers(3, start=21))

    assert shop.numbers("s") == list(range(1, 24))
    assert stages(shop) == {}
    entries: Any = shop.client.xrange("s")
    assert shop.client.hgetall(MARKER) == {
        b"epoch": b"1",
        b"stage": b"0",
        b"position": b"0" if shop.client.hget(MARKER, "position") == b"0" else b"3",
        b"published": b"3",
        b"entries": b"3",
        b"done": b"1",
        b"reached": b"1",
        b"added": b"23",
        b"last": entries[-1][0],
    }


def test_a_written_epoch_is_skipped(shop: Shop) -> None:
    query = Writing(shop)
    query.epoch(0, numbers(5))

    query.epoch(0, numbers(2, 3))

    assert shop.numbers("s") == [1, 2, 3, 4, 5]
    assert stages(shop) == {}


@pytest.mark.slow
@pytest.mark.parametrize("torn", [False, True], ids=["between", "torn"])
def test_a_replay_after_any_step_leaves_each_row_once(shop: Shop, small: None, torn: bool) -> None:
    # Given rows that a replay splits and orders differently
    rows = [{"n": number} for number in range(1, 17)]
    first = [rows[:9], [], rows[9:12], rows[12:]]
    cuts = random.Random(1).sample(rows, len(rows))
    again = [cuts[:3], cuts[3:14], cuts[14:]]
    orders = [[row["n"] for row in rows], [row["n"] for row in cuts]]
    step, seen = 0, set[int]()

    while True:
        shop.client.flushall()
        query = Writing(shop)
        query.epoch(0, numbers(2, start=100))
        try:
            # When the first run is killed after a step
            with killed_after(step, torn=torn):
                query.epoch(1, first)
            done = True
        except Killed:
            done = False
        # Then no recorded stage can expire, and the replay completes the epoch
        Writing(shop).epoch(1, again)
        found = shop.numbers("s")
        assert found[:2] == [100, 101]
        assert found[2:] in orders, step
        seen.add(orders.index(found[2:]))
        assert all(0 < seconds <= STAGE_SECONDS for seconds in stages(shop).values())
        query.epoch(2, numbers(1, start=200))
        assert shop.numbers("s") == [*found, 200]
        if done:
            break
        step += 1

    assert seen == {0, 1}
    assert step > 15


def test_a_later_epoch_finishes_an_unfinished_one_first(shop: Shop, small: None) -> None:
    query = Writing(shop)
    messages = query.stage(numbers(12))
    with killed_when(lambda: shop.client.exists("s")), pytest.raises(Killed):
        query.commit(messages, 0)

    query.epoch(1, numbers(2, start=13))

    assert shop.numbers("s") == list(range(1, 15))
    assert stages(shop) == {}


def test_two_drivers_of_one_query_write_each_row_once(shop: Shop, small: None) -> None:
    query = Writing(shop)
    runs = [query.stage(numbers(40, 60)), query.stage(numbers(30, 70))]
    failures: list[Exception] = []

    def commit(messages: Any) -> None:
        try:
            Writing(shop).commit(messages, 0)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=commit, args=(messages,)) for messages in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert shop.numbers("s") == list(range(1, 101))
    assert stages(shop) == {}


def test_other_clients_may_write_to_the_stream_at_the_same_time(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "FLUSH_ROWS", 20)
    stop = threading.Event()
    added = 0

    def produce() -> None:
        nonlocal added
        with redis.Redis.from_url(shop.url) as client:
            while not stop.is_set():
                client.xadd("s", {"n": -1})
                added += 1

    producers = [threading.Thread(target=produce)]
    for producer in producers:
        producer.start()
    try:
        Writing(shop).epoch(0, numbers(500, 500))
    finally:
        stop.set()
        for producer in producers:
            producer.join()

    found = shop.numbers("s")
    assert [number for number in found if number > 0] == list(range(1, 1001))
    assert len(found) == 1000 + added


def test_an_epoch_below_the_last_one_names_the_checkpoint(shop: Shop) -> None:
    query = Writing(shop, checkpointLocation="/data/checkpoint")
    query.epoch(0, numbers(1))
    query.epoch(1, numbers(1, start=2))

    with pytest.raises(
        HeadwaterError,
        match=r"batch 0 of query q cannot be written.*'s' already has batch 1:.*/data/chec",
    ):
        query.epoch(0, numbers(2, start=3))

    assert shop.numbers("s") == [1, 2]
    assert stages(shop) == {}


def test_an_epoch_without_rows_leaves_no_entry(shop: Shop) -> None:
    query = Writing(shop)

    query.epoch(0, [])
    assert shop.client.keys() == []
    query.epoch(0, numbers(0, 0))

    assert shop.client.keys() == [MARKER.encode()]
    query.epoch(1, numbers(1))
    assert shop.numbers("s") == [1]


# --- without streaming queries --------------------------------------------------------------------


def test_at_least_once_needs_no_stage(shop: Shop, small: None) -> None:
    query = Writing(shop, delivery="atLeastOnce")

    messages = query.stage(numbers(6, 7))

    assert shop.numbers("s") == list(range(1, 14))
    query.commit(messages, 0)
    assert shop.client.keys() == [b"s"]


def test_a_batch_is_added_to_the_stream(shop: Shop, small: None) -> None:
    Writing(shop, maxlen="=10").batch(numbers(6, 7))

    assert shop.numbers("s") == list(range(4, 14))


def test_a_batch_with_a_transaction_is_written_once(shop: Shop, small: None) -> None:
    def write(version: int, start: int) -> None:
        Writing(shop, txnAppId="nightly", txnVersion=str(version)).batch(numbers(4, 3, start=start))

    write(1, 1)
    write(1, 1)
    write(2, 8)
    with pytest.raises(
        HeadwaterError,
        match=r"txnVersion 1 of txnAppId 'nightly' cannot be written.* has version 2",
    ):
        write(1, 15)

    assert shop.numbers("s") == list(range(1, 15))
    assert stages(shop) == {}


def test_publishing_trims_the_stream(shop: Shop, small: None) -> None:
    Writing(shop, maxlen="=3").epoch(0, numbers(11))

    assert shop.numbers("s") == [9, 10, 11]
