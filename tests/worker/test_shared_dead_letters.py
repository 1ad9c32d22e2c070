"""One dead-letter stream can serve several streams and groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from headwater.messages.dead import parse_dead_letter
from headwater.worker import App, Dead, Stream
from tests.worker.apps import Order, Store, eventually, orders, working

refunds: Stream[Order] = Stream("refunds", Order)


def consuming_both(store: Store, *, succeed: bool) -> tuple[App, list[tuple[str, int]]]:
    """An app with two groups of orders and one of refunds, which share one dead-letter stream."""
    app = store.app()
    handled: list[tuple[str, int]] = []

    def declare(stream: Stream[Order], group: str) -> None:
        @app.consumer(stream, group=group, dead="dead-letters")
        async def bill(order: Order) -> None:
            if not succeed:
                raise Dead("rejected")
            handled.append((f"{stream.name}/{group}", order.id))

    declare(orders, "billing")
    declare(orders, "audit")
    declare(refunds, "billing")
    return app, handled


@pytest.fixture
async def shared(store: Store) -> list[str]:
    """Ids of the dead letters of the three groups, in the order of stream and group."""
    app, _handled = consuming_both(store, succeed=False)
    async with working(app):
        await app.send(orders, Order(1))
        await app.send(refunds, Order(2))

        async def all_dead() -> bool:
            return bool(await store.look.xlen("dead-letters") == 3)

        await eventually(all_dead)
    entries: Any = await store.look.xrange("dead-letters")
    letters = [
        parse_dead_letter(entry_id.decode(), [part for pair in fields.items() for part in pair])
        for entry_id, fields in entries
    ]
    letters.sort(key=lambda one: (one.stream, one.group))
    return [one.id for one in letters]


async def test_dead_list_and_show_select_the_dead_letters_of_one_stream(
    store: Store, shared: list[str], run_headwater: Callable[..., str]
) -> None:
    audit, billing, refund = shared
    where = ("--from", "dead-letters", "--url", store.url)
    listed = run_headwater("dead", "list", "orders", *where)
    assert set(re.findall(r"^\S+", listed, re.MULTILINE)) == {audit, billing}
    assert "refunds" in run_headwater("dead", "list", "refunds", *where)
    assert "refunds" in run_headwater("dead", "show", "refunds", refund, *where)


async def test_dead_replay_returns_each_dead_letter_of_one_stream_to_its_group(
    store: Store, shared: list[str], run_headwater: Callable[..., str]
) -> None:
    _audit, _billing, refund = shared
    run_headwater("dead", "replay", "orders", "--all", "--from", "dead-letters", "--url", store.url)
    entries: Any = await store.look.xrange("dead-letters")
    assert [one[0].decode() for one in entries] == [refund]

    app, handled = consuming_both(store, succeed=True)
    async with working(app):
        await eventually(lambda: len(handled) == 2)
    assert sorted(handled) == [("orders/audit", 1), ("orders/billing", 1)]


async def test_dead_drop_deletes_the_dead_letters_of_one_stream(
    store: Store, shared: list[str], run_headwater: Callable[..., str]
) -> None:
    output = run_headwater(
        "dead", "drop", "refunds", "--all", "--yes", "--from", "dead-letters", "--url", store.url
    )
    assert output == "1 dropped\n"
    entries: Any = await store.look.xrange("dead-letters")
    assert sorted(one[0].decode() for one in entries) == sorted(shared[:2])
