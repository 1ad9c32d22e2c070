"""One dead-letter stream for several streams and groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from headwater.messages import parse_dead_letter
from headwater.worker import App, Dead, Stream
from tests.worker.apps import Order, Store, eventually, orders, working

refunds: Stream[Order] = Stream("refunds", Order)


def working_on_both(store: Store, *, well: bool) -> tuple[App, list[tuple[str, int]]]:
    """An app with two groups of orders and one of refunds, whose dead letters go to one stream."""
    app = store.app()
    handled: list[tuple[str, int]] = []

    def declare(stream: Stream[Order], group: str) -> None:
        @app.consumer(stream, group=group, dead="graveyard")
        async def bill(order: Order) -> None:
            if not well:
                raise Dead("ill")
            handled.append((f"{stream.name}/{group}", order.id))

    declare(orders, "billing")
    declare(orders, "audit")
    declare(refunds, "billing")
    return app, handled


@pytest.fixture
async def graveyard(store: Store) -> list[str]:
    """Dead letters of each of the three groups; the ids of their records, by stream and group."""
    app, _handled = working_on_both(store, well=False)
    async with working(app):
        await app.send(orders, Order(1))
        await app.send(refunds, Order(2))

        async def all_dead() -> bool:
            return bool(await store.look.xlen("graveyard") == 3)

        await eventually(all_dead)
    entries: Any = await store.look.xrange("graveyard")
    letters = [
        parse_dead_letter(entry_id.decode(), [part for pair in fields.items() for part in pair])
        for entry_id, fields in entries
    ]
    letters.sort(key=lambda one: (one.stream, one.group))
    return [one.id for one in letters]


async def test_each_stream_lists_and_shows_its_own_letters(
    store: Store, graveyard: list[str], run_headwater: Callable[..., str]
) -> None:
    audit, billing, refund = graveyard
    where = ("--from", "graveyard", "--url", store.url)
    listed = run_headwater("dead", "list", "orders", *where)
    assert set(re.findall(r"^\S+", listed, re.MULTILINE)) == {audit, billing}
    assert "refunds" in run_headwater("dead", "list", "refunds", *where)
    assert "refunds" in run_headwater("dead", "show", "refunds", refund, *where)


async def test_a_replay_reaches_the_group_of_each_letter_and_leaves_other_streams_alone(
    store: Store, graveyard: list[str], run_headwater: Callable[..., str]
) -> None:
    _audit, _billing, refund = graveyard
    run_headwater("dead", "replay", "orders", "--all", "--from", "graveyard", "--url", store.url)
    entries: Any = await store.look.xrange("graveyard")
    assert [one[0].decode() for one in entries] == [refund]

    app, handled = working_on_both(store, well=True)
    async with working(app):
        await eventually(lambda: len(handled) == 2)
    assert sorted(handled) == [("orders/audit", 1), ("orders/billing", 1)]


async def test_dropping_all_letters_of_a_stream_leaves_the_others(
    store: Store, graveyard: list[str], run_headwater: Callable[..., str]
) -> None:
    said = run_headwater(
        "dead", "drop", "refunds", "--all", "--from", "graveyard", "--url", store.url
    )
    assert said == "1 dropped\n"
    entries: Any = await store.look.xrange("graveyard")
    assert sorted(one[0].decode() for one in entries) == sorted(graveyard[:2])
