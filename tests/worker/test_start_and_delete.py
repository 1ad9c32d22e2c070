"""Where a new group begins, and entries that are deleted once they are handled."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.errors import DeclarationError
from headwater.groups.protocol.operation import perform
from headwater.groups.settling.dead_letters import page
from headwater.groups.settling.replay import ReplayResult, replay
from headwater.messages.keys import dead_letter_stream
from headwater.worker import App, Dead
from tests.worker.apps import Invoice, Order, Store, eventually, invoices, orders, worker, working

DELETE_FOR_ALL = ("headwater", "redis-8.2")
"""Servers that can tell whether every group has acknowledged an entry."""


@pytest.fixture
def store(any_store: Store) -> Store:
    """An empty store, on each of the four servers."""
    return any_store


def billing(store: Store, **options: Any) -> tuple[App, list[int]]:
    """An app with a consumer of orders, and the ids of the orders that it handled."""
    app = store.app()
    handled: list[int] = []

    @app.consumer(orders, **{"group": "g", **options})
    async def bill(order: Order) -> None:
        if order.id < 0:
            raise Dead("no such order")
        handled.append(order.id)

    return app, handled


# --- start ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("beginning", [1, 2, 3, 9]),
        ("new", [9]),
        ("2000-0", [3, 9]),
        (datetime.fromtimestamp(2, UTC), [2, 3, 9]),
        (datetime.fromtimestamp(0, UTC), [1, 2, 3, 9]),
    ],
)
async def test_a_new_group_begins_at_start(store: Store, start: Any, expected: list[int]) -> None:
    for number in (1, 2, 3):
        await store.look.xadd("orders", {"id": number}, id=f"{number}000-0")
    app, handled = billing(store, start=start)
    async with working(app) as running:
        (loop,) = running.loops.values()
        await eventually(lambda: loop.fetcher.joined)
        await app.send(orders, Order(9))
        await eventually(lambda: 9 in handled)
        await eventually(store.settled)
    assert handled == expected


async def test_start_does_not_affect_an_existing_group(store: Store) -> None:
    await store.look.xadd("orders", {"id": 1})
    await store.look.xgroup_create("orders", "g", "0")
    app, handled = billing(store, start="new")
    async with working(app):
        await eventually(lambda: handled == [1])


@pytest.mark.parametrize("start", ["old", "", "17", datetime(2026, 1, 1), 17, None])  # noqa: DTZ001
def test_an_invalid_start_is_refused_at_its_declaration(start: Any) -> None:
    with pytest.raises(DeclarationError, match=r"start="):
        App("redis://localhost:1").consumer(orders, group="g", start=start)(lambda order: None)


# --- delete ---------------------------------------------------------------------------------------


async def test_handled_entries_are_deleted_and_not_reported_as_lost(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, handled = billing(store, delete=True)
    async with working(app):
        await app.send_many(orders, [Order(n) for n in (1, 2, -3, 4)])
        await eventually(lambda: len(handled) == 3)
        await eventually(store.settled)
    assert await store.look.xlen("orders") == 0
    (letter,) = await store.dead()
    assert letter.fields == [(b"id", b"-3")]
    assert "lost" not in caplog.text


async def test_an_entry_is_not_deleted_before_its_last_retry(store: Store) -> None:
    app = store.app()
    counts = []

    @app.consumer(orders, group="g", delete=True, retry=None, into=invoices)
    async def bill(order: Order) -> Invoice:
        counts.append(await store.look.xlen("orders"))
        if len(counts) < 3:
            raise ValueError("again")
        return Invoice(order.id)

    async with working(app):
        await app.send(orders, Order(1))
        await eventually(store.settled)
    assert counts == [1, 1, 1]
    assert await store.look.xlen("orders") == 0
    assert await store.results() == [Invoice(1)]


@pytest.mark.parametrize("any_store", DELETE_FOR_ALL, indirect=True)
async def test_an_entry_is_deleted_by_the_last_group_that_acknowledges_it(store: Store) -> None:
    # Given two groups that delete, of which one waits in its handler
    app, handled = billing(store, delete=True)
    go_on = asyncio.Event()

    @app.consumer(orders, group="other", delete=True)
    async def wait(order: Order) -> None:
        await go_on.wait()

    async with working(app):
        await app.send_many(orders, [Order(1), Order(2)])
        await eventually(store.settled)

        # Then the first one deletes nothing, and the second deletes when it acknowledges
        assert await store.look.xlen("orders") == 2
        go_on.set()
        await eventually(lambda: store.settled("other"))
    assert handled == [1, 2]
    assert await store.look.xlen("orders") == 0


@pytest.mark.parametrize("any_store", ["redis-7.0", "valkey-9.1"], indirect=True)
async def test_delete_with_a_second_group_is_refused_on_servers_without_xackdel(
    store: Store,
) -> None:
    await store.look.xgroup_create("orders", "audit", "0", mkstream=True)
    app, _handled = billing(store, delete=True)
    running = worker(app)
    running.start()
    with pytest.raises(DeclarationError, match="has the groups audit besides 'g'"):
        await running.until_stopped()
    await running.stop(0)


@pytest.mark.parametrize("any_store", ["redis-7.0", "valkey-9.1"], indirect=True)
async def test_delete_stops_deleting_when_a_second_group_is_created(store: Store) -> None:
    app, handled = billing(store, delete=True)
    async with working(app):
        await app.send(orders, Order(1))
        await eventually(lambda: handled == [1])
        await eventually(store.settled)
        await store.look.xgroup_create("orders", "audit", "0")
        await app.send(orders, Order(2))
        await eventually(lambda: handled == [1, 2])
        await eventually(store.settled)
    assert await store.look.xlen("orders") == 1


async def test_a_deleted_dead_letter_can_be_replayed(store: Store) -> None:
    app, _handled = billing(store, delete=True)
    async with working(app):
        await app.send(orders, Order(-3))
        await eventually(store.dead)
        dead = dead_letter_stream("orders")
        async with store.look.client() as one:
            letters = await perform(one, page(dead))
            (outcome,) = await perform(one, replay(dead, letters))
    assert outcome.how is ReplayResult.ADDED
