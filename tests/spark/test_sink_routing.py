"""Rows go to the streams that they name, each once, whichever process is killed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headwater.errors import DeclarationError, EncodeError, HeadwaterError
from headwater.spark.core.ddl import parse_schema
from headwater.spark.sink.columns import check_schema
from headwater.spark.sink.options import parse_options
from tests.spark.stores import Shop
from tests.spark.writes import Killed, Rows, Writing, killed_after, stages

pytestmark = pytest.mark.peer

STORES = ("headwater", "redis-8.2", "valkey-9.1")

NAMES = ("eu", "us", "asia")


class Routing(Writing):
    """A writer of rows with the columns ``to`` and ``n``."""

    def __init__(self, shop: Shop, **options: str) -> None:
        super().__init__(shop, "to string, n bigint", **options)
        del self.options["stream"]
        self.options["streamColumn"] = "to"


def rows(*numbers: int) -> Rows:
    return [{"to": NAMES[number % 3], "n": number} for number in numbers]


def found(shop: Shop) -> dict[str, list[int]]:
    return {name: shop.numbers(name) for name in NAMES}


def test_each_row_is_in_the_stream_that_it_names(shop: Shop, small: None) -> None:
    query = Routing(shop)
    query.epoch(0, [rows(*range(1, 21)), rows(*range(21, 31))])
    query.epoch(1, [rows(31), rows(32, 33)])

    assert found(shop) == {
        name: [n for n in range(1, 34) if n % 3 == place] for place, name in enumerate(NAMES)
    }
    entries: Any = shop.client.xrange("eu", count=1)
    assert entries[0][1] == {b"n": b"3"}
    assert stages(shop) == {}


@pytest.mark.slow
def test_a_replay_after_any_step_leaves_each_row_once_in_its_stream(
    shop: Shop, small: None
) -> None:
    numbers = list(range(1, 19))
    cuts = random.Random(1).sample(numbers, len(numbers))
    step = 0
    done = False
    while not done:
        shop.client.flushall()
        query = Routing(shop)
        try:
            with killed_after(step):
                query.epoch(7, [rows(*numbers[:11]), rows(), rows(*numbers[11:])])
            done = True
        except Killed:
            pass
        # When the batch is repeated, with its rows divided differently
        Routing(shop).epoch(7, [rows(*cuts[:5]), rows(*cuts[5:])])
        after = found(shop)
        for place, name in enumerate(NAMES):
            assert sorted(after[name]) == [n for n in numbers if n % 3 == place], step
        Routing(shop).epoch(8, [rows(*numbers)])
        assert shop.client.xlen("eu") == 12
        step += 1
    assert step > 15


def test_a_batch_and_a_write_at_least_once_are_routed_too(shop: Shop, small: None) -> None:
    Routing(shop).batch([rows(1, 2), rows(3, 4)])
    Routing(shop, delivery="atLeastOnce").stage([rows(5, 6)])
    for _repeated in range(2):
        Routing(shop, txnAppId="a", txnVersion="1").batch([rows(7, 8, 9)])

    assert found(shop) == {"eu": [3, 6, 9], "us": [1, 4, 7], "asia": [2, 5, 8]}


def test_ids_increase_in_each_stream(shop: Shop) -> None:
    query = Routing(shop)
    query.schema = parse_schema("id string, to string, n bigint")
    query.arrow = query.arrow.insert(0, query.arrow.field("to").with_name("id"))
    good: Any = [{"id": f"{n}-1", "to": to, "n": n} for n, to in ((5, "eu"), (3, "us"), (6, "eu"))]

    query.epoch(0, [good])

    entries: Any = shop.client.xrange("eu")
    assert entries[0][0] == b"5-1"
    with pytest.raises(
        EncodeError, match=r"row 1 .* 6-1, which is not above the previous one, 7-1"
    ):
        query.stage([[{"id": "7-1", "to": "eu", "n": 1}, {"id": "6-1", "to": "eu", "n": 1}]])


@pytest.mark.parametrize("name", [None, "", "{eu}:hw:sink:q"])
def test_a_row_without_a_name_is_refused_and_nothing_is_written(
    shop: Shop, name: str | None
) -> None:
    with pytest.raises(
        EncodeError, match=r"row 1 of this task has .* as its stream, in the column 'to'"
    ):
        Routing(shop).stage([[{"to": "eu", "n": 1}, {"to": name, "n": 2}]])
    assert shop.client.keys() == []


def test_a_key_of_another_type_leaves_the_batch_to_be_repeated(shop: Shop) -> None:
    shop.client.set("us", "text")
    query = Routing(shop)
    with pytest.raises(HeadwaterError, match="the key 'us' holds a string"):
        query.epoch(0, [rows(1, 2, 3)])
    shop.client.delete("us")
    query.epoch(0, [rows(1, 2, 3)])
    assert found(shop) == {"eu": [3], "us": [1], "asia": [2]}


def test_wrong_options_and_columns_are_refused() -> None:
    given = {"url": "redis://h", "streamColumn": "to"}
    with pytest.raises(DeclarationError, match="stream and streamColumn exclude each other"):
        parse_options(given | {"stream": "s"}, streaming=True)
    for schema, why in (
        ("n bigint", "it is missing; columns are n"),
        ("to bigint, n bigint", "it has the type bigint"),
    ):
        with pytest.raises(DeclarationError, match=f"streamColumn: the column 'to' .*{why}"):
            check_schema(parse_schema(schema), "fields", "to")
    with pytest.raises(DeclarationError, match="at least one field"):
        check_schema(parse_schema("to string, id string"), "fields", "to")
    entry = "entry array<struct<name: binary, value: binary>>"
    check_schema(parse_schema(f"to string, id string, {entry}"), "fields", "to")


@pytest.mark.slow
def test_a_thousand_streams_take_one_connection(shop: Shop) -> None:
    many: Any = [{"to": f"s{number % 1000}", "n": number} for number in range(3000)]
    before = int(shop.client.info("stats")["total_connections_received"])

    Routing(shop).epoch(0, [many])

    made = int(shop.client.info("stats")["total_connections_received"]) - before
    assert made <= 6
    assert [shop.numbers("s7"), shop.client.xlen("s999")] == [[7, 1007, 2007], 3]
    assert stages(shop) == {}
