"""Errors of the sink, and what they leave behind."""

from __future__ import annotations

import random
from typing import Any

import pytest
import redis

from headwater.errors import DataLoss, DeclarationError, EncodeError, HeadwaterError
from headwater.spark.core import connection
from tests.spark.stores import Shop
from tests.spark.writes import (
    Killed,
    Writing,
    killed_when,
    numbers,
    stages,
)

pytestmark = pytest.mark.peer

STORES = ("headwater", "redis-7.0", "redis-8.2", "valkey-9.1")

MARKER = "{s}:hw:sink:q"


# --- missing stages -------------------------------------------------------------------------------


def test_a_missing_recorded_stage_is_an_error_that_names_it(shop: Shop, small: None) -> None:
    query = Writing(shop)
    messages = query.stage(numbers(7, 7))
    with killed_when(lambda: shop.client.exists("s")), pytest.raises(Killed):
        query.commit(messages, 0)
    assert set(stages(shop).values()) == {-1}
    shop.client.delete(*stages(shop))

    with pytest.raises(DataLoss, match=r"stage \{s\}:hw:stage:q:\w+ is gone.*4 of 14 entries") as e:
        query.epoch(0, numbers(14))
    with pytest.raises(DataLoss, match="is gone"):
        query.epoch(1, numbers(1, start=15))

    assert shop.numbers("s") == [1, 2, 3, 4]
    assert stages(shop) == {}
    # And the remedy in the error works
    shop.client.execute_command(*str(e.value).partition("without them: ")[2].split())
    query.epoch(1, numbers(1, start=15))
    assert shop.numbers("s") == [1, 2, 3, 4, 15]


def test_a_stage_lost_before_anything_was_visible_is_replaced(shop: Shop) -> None:
    query = Writing(shop)
    messages = query.stage(numbers(3, 4))
    with killed_when(lambda: shop.client.exists(MARKER)), pytest.raises(Killed):
        query.commit(messages, 0)
    assert not shop.client.exists("s")
    shop.client.delete(next(iter(stages(shop))))

    query.epoch(0, numbers(7))

    assert shop.numbers("s") == [1, 2, 3, 4, 5, 6, 7]
    assert stages(shop) == {}


def test_a_stage_with_missing_entries_cannot_be_recorded(shop: Shop) -> None:
    query = Writing(shop)
    messages = query.stage(numbers(3))
    shop.client.delete(*stages(shop))

    with pytest.raises(DataLoss, match="has 0 of 1 packs"):
        query.commit(messages, 0)

    query.epoch(0, numbers(3))
    assert shop.numbers("s") == [1, 2, 3]


def test_abort_keeps_recorded_stages(shop: Shop, small: None) -> None:
    query = Writing(shop)
    recorded = query.stage(numbers(8))
    with killed_when(lambda: shop.client.exists("s")), pytest.raises(Killed):
        query.commit(recorded, 0)
    others = query.stage(numbers(8))

    query.abort([*recorded, *others, None], 0)

    assert list(stages(shop).values()) == [-1]
    query.epoch(0, [])  # without tasks the query's id is not known
    query.epoch(1, numbers(1, start=9))
    assert shop.numbers("s") == list(range(1, 10))


def test_a_failed_task_removes_its_stage(shop: Shop, small: None) -> None:
    query = Writing(shop, "n bigint, text string")
    rows: Any = [{"n": number} for number in range(1, 9)] + [{"n": None, "text": None}]

    with pytest.raises(EncodeError, match="row 8 of this task is null in every column"):
        query.stage([rows])

    assert shop.client.keys() == []


# --- ids ------------------------------------------------------------------------------------------


def test_the_column_id_is_the_entrys_id(shop: Shop, small: None) -> None:
    rows = [{"id": f"{number}-{number}", "n": number} for number in range(1, 12)]

    query = Writing(shop, "id string, n bigint")
    query.epoch(0, [rows[:6], rows[6:]])

    entries: Any = shop.client.xrange("s")
    assert [id_.decode() for id_, _fields in entries] == [row["id"] for row in rows]
    assert entries[0][1] == {b"n": b"1"}
    Writing(shop, "id string, n bigint").batch([[{"id": "20-0", "n": 20}]])
    assert shop.numbers("s")[-1] == 20


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            [["2-0", "1-0"]],
            "row 1 of this task has the id 1-0, which is not above the previous one, 2-0",
        ),
        ([["1-0", None]], "row 1 of this task has the invalid id None"),
        ([["1-*"]], "row 0 of this task has the invalid id '1-[*]'"),
        ([["5-0"], ["4-0"]], "sets 4-0, which is not above 5-0, the last one of the previous task"),
        ([["0-1"]], "sets 0-1, which is not above 0-9, the last one in the stream"),
    ],
)
def test_ids_that_do_not_increase_are_refused_before_anything_is_written(
    shop: Shop, parts: list[list[str]], said: str
) -> None:
    shop.client.xadd("s", {"n": 0}, id="0-9")
    query = Writing(shop, "id string, n bigint")

    with pytest.raises((EncodeError, HeadwaterError), match=said):
        query.epoch(0, [[{"id": id_, "n": 1} for id_ in part] for part in parts])

    assert shop.client.keys() == [b"s"]
    assert shop.client.xlen("s") == 1


def test_ids_below_those_of_another_producer_are_an_error_with_the_count(
    shop: Shop, small: None
) -> None:
    query = Writing(shop, "id string, n bigint")
    messages = query.stage([[{"id": f"{n}-0", "n": n} for n in range(1, 11)]])
    with killed_when(lambda: shop.client.exists("s")), pytest.raises(Killed):
        query.commit(messages, 0)
    shop.client.xadd("s", {"n": 0}, id="8-0")

    with pytest.raises(HeadwaterError, match="4 of 10 entries of batch 0 of query q are written"):
        query.epoch(0, [])
        query.commit(query.stage([[]]), 0)

    assert shop.numbers("s") == [1, 2, 3, 4, 0]


# --- obstacles ------------------------------------------------------------------------------------


def test_a_key_of_another_type_is_an_error(shop: Shop) -> None:
    shop.client.set("s", "text")
    query = Writing(shop)

    with pytest.raises(DeclarationError, match="the key 's' holds a string, not a stream"):
        query.epoch(0, numbers(1))
    with pytest.raises(HeadwaterError, match=r"refused an entry for 's': WRONGTYPE|wrong kind"):
        Writing(shop).batch(numbers(1))

    assert shop.client.keys() == [b"s"]


def test_the_key_may_change_its_type_during_an_epoch(shop: Shop, small: None) -> None:
    query = Writing(shop)
    messages = query.stage(numbers(12))
    with killed_when(lambda: shop.client.exists("s")), pytest.raises(Killed):
        query.commit(messages, 0)
    shop.client.set("s", "text")

    with pytest.raises(DeclarationError, match="holds a string"):
        query.epoch(0, numbers(12))
    shop.client.delete("s")
    query.epoch(0, numbers(12))

    assert shop.numbers("s") == list(range(5, 13))


@pytest.mark.slow
def test_an_entry_with_thousands_of_fields_is_written(shop: Shop) -> None:
    columns = [f"c{number}" for number in range(4000)]
    query = Writing(shop, ", ".join(f"{column} string" for column in columns))

    query.epoch(0, [[{"c1": "a"}, dict.fromkeys(columns, "b"), {"c2": "c"}]])

    entries: Any = shop.client.xrange("s")
    assert [len(fields) for _id, fields in entries] == [1, 4000, 1]


def test_the_sink_waits_for_a_server_that_is_briefly_unreachable(
    shop: Shop, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given connections that break before, after and in the middle of a request
    from redis.connection import AbstractConnection

    send: Any = AbstractConnection.send_packed_command
    chance = random.Random(3)
    breaks = 0

    def flaky(self: Any, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        nonlocal breaks
        if chance.random() > 0.05:
            send(self, command, check_health)
            return
        breaks += 1
        if self._sock is None:
            self.connect()
        whole = b"".join([command] if isinstance(command, bytes) else command)
        self._sock.sendall(whole[: chance.randint(0, len(whole))])
        self.disconnect()
        raise redis.ConnectionError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(AbstractConnection, "send_packed_command", flaky)
        patched.setattr(connection, "_FIRST_PAUSE", 0.001)
        query = Writing(shop)
        for epoch in range(5):
            query.epoch(epoch, numbers(7, 20, start=1 + 27 * epoch))

    assert breaks > 5
    assert shop.numbers("s") == list(range(1, 1 + 27 * 5))
