"""Deadlines count silence: large results and large entries take the time that their link needs, and delay no others."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import perform
from headwater.groups.reports.hung import read_said
from headwater.worker import App, Stream
from tests.worker.apps import Order, Store, eventually, orders, working
from tests.worker.proxy import proxy

pytestmark = pytest.mark.slow


class Report(msgspec.Struct):
    order: int
    text: str = ""


reports: Stream[Report] = Stream("reports", Report)

LARGE = 0
"""The number of the order with a large report."""
SIZE = 1_500_000
RATE = 700_000
"""So the report takes twice the deadline of the connections, which is at least a second."""


def reporting(url: str, barrier: asyncio.Barrier) -> App:
    """An app whose handlers wait at the barrier, and return together."""
    app = App(url, name="reporter")

    @app.consumer(orders, group="g", into=reports, claim_after="3s")
    async def report(order: Order) -> Report:
        await barrier.wait()
        return Report(order.id, "x" * SIZE if order.id == LARGE else "")

    return app


async def test_a_large_result_over_a_slow_link_is_sent_once_and_delays_no_other(
    any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a worker with a link on which a large result takes longer than a deadline and than a lease
    async with proxy(any_store.url) as link:
        async with working(reporting(link.url, asyncio.Barrier(6)), grace=20) as running:
            (loop,) = running.loops.values()
            await eventually(lambda: loop.admission.joined)
            link.rate = RATE
            before = link.requests

            # When six handlers return together, one of them with the large result
            await any_store.look.xadd("orders", {"id": str(LARGE)})
            for number in range(1, 6):
                await any_store.look.xadd("orders", {"id": str(number)})
            await eventually(any_store.settled)
            sent = link.requests - before

    # Then the others are settled first, and each result is there once
    found = [one.order for one in await any_store.results(reports)]
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    assert found[-1] == LARGE
    # And the large one was sent once, while the leases were renewed
    assert sent < 1.2 * SIZE
    counters = loop.endings.telemetry.counters
    assert (counters.handled, counters.lost, counters.overtaken) == (6, 0, 0)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


async def test_a_large_result_whose_reply_was_lost_is_not_sent_again(any_store: Store) -> None:
    # Given a worker whose large result reaches the store, while replies are held back
    async with proxy(any_store.url) as link:
        link.rate = 4 * RATE
        async with working(reporting(link.url, asyncio.Barrier(1))) as running:
            (loop,) = running.loops.values()
            await any_store.look.xadd("orders", {"id": str(LARGE)})
            await eventually(lambda: link.requests > SIZE / 2)
            link.answers.clear()
            await eventually(lambda: any_store.look.xlen(reports.name))
            sent = link.requests

            # When the connections break
            link.cut()
            link.answers.set()
            await eventually(lambda: not loop.in_flight.owned)
            more = link.requests - sent

    # Then the worker asks whether the entry is pending, and sends the result no more
    assert more < SIZE / 10
    assert len(await any_store.results(reports)) == 1
    counters = loop.endings.telemetry.counters
    assert (counters.handled, counters.published, counters.overtaken) == (1, 1, 0)


async def test_a_large_result_whose_connection_broke_halfway_is_published_once(
    any_store: Store,
) -> None:
    async with proxy(any_store.url) as link:
        link.rate = 20 * RATE
        async with working(reporting(link.url, asyncio.Barrier(1))) as running:
            (loop,) = running.loops.values()
            await any_store.look.xadd("orders", {"id": str(LARGE)})
            await eventually(lambda: link.requests > SIZE / 2)
            link.cut()
            await eventually(any_store.settled)
            await eventually(lambda: not loop.in_flight.owned)
    assert len(await any_store.results(reports)) == 1
    assert link.requests < 1.9 * SIZE
    assert loop.endings.telemetry.counters.handled == 1


async def test_a_stop_that_runs_out_of_grace_says_which_result_was_under_way(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a large result that needs two seconds more
    async with proxy(store.url) as link:
        async with working(reporting(link.url, asyncio.Barrier(1)), grace=1.0) as running:
            (loop,) = running.loops.values()
            await eventually(lambda: loop.admission.joined)
            link.rate = RATE
            entry: Any = await store.look.xadd("orders", {"id": str(LARGE)})
            await eventually(loop.in_flight.settler.under_way)
        # When the worker stops within a second, then the log says what was under way
        name = entry.decode()
    (line,) = [one.message for one in caplog.records if "still owns" in one.message]
    assert f"the time to stop was over, with the result of {name} of orders (" in line
    assert "of 1.5 MB sent)" in line
    assert await store.results(reports) == []


async def test_a_stop_takes_no_longer_than_a_large_result_needs(store: Store) -> None:
    # Given a large result under way, and a long time to stop
    async with proxy(store.url) as link:
        async with working(reporting(link.url, asyncio.Barrier(1)), grace=600) as running:
            (loop,) = running.loops.values()
            await eventually(lambda: loop.admission.joined)
            link.rate = RATE
            await store.look.xadd("orders", {"id": str(LARGE)})
            await eventually(loop.in_flight.settler.under_way)
    # Then the worker has published it and left the group
    assert len(await store.results(reports)) == 1
    assert await store.consumers() == []


async def test_a_large_message_delays_no_other_of_its_publisher(store: Store) -> None:
    async with proxy(store.url) as link, App(link.url) as app:
        await app.send(orders, Order(0))
        link.rate = 2 * RATE
        large = asyncio.create_task(app.send(documents, Document("x" * SIZE)))
        await eventually(lambda: link.requests > SIZE / 10)
        await app.send(orders, Order(1))
        assert not large.done()
        await large
    assert await store.look.xlen(documents.name) == 1


async def test_a_link_that_a_large_result_fills_is_not_a_store_that_does_not_answer(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a large result under way, behind which the answers to everything else are late
    async with proxy(store.url) as link:
        async with working(reporting(link.url, asyncio.Barrier(1)), grace=20) as running:
            (loop,) = running.loops.values()
            await eventually(lambda: loop.admission.joined)
            link.rate = RATE
            before = link.requests
            await store.look.xadd("orders", {"id": str(LARGE)})
            await eventually(lambda: link.requests - before > SIZE / 10)
            link.answers.clear()
            # When deadlines pass while its bytes move
            await eventually(lambda: "no lease of orders/g was renewed" in caplog.text)
            await eventually(lambda: link.requests - before > 0.9 * SIZE)
            link.answers.set()
            await eventually(store.settled)
    # Then the log does not blame the store
    assert "does not answer" not in caplog.text
    assert len(await store.results(reports)) == 1


class Document(msgspec.Struct):
    text: str


documents: Stream[Document] = Stream("documents", Document)


def reading(url: str) -> tuple[App, list[int]]:
    """An app, and the sizes of the documents that it has read."""
    app, handled = App(url, name="reader"), []

    @app.consumer(documents, group="g", claim_after="1500ms", prefetch=6)
    async def read(document: Document) -> None:
        handled.append(len(document.text))

    return app, handled


async def test_a_large_reply_is_not_interrupted_and_is_named_while_it_is_under_way(
    any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a worker that reads entries whose reply takes longer than a deadline and than claim_after
    caplog.set_level(logging.INFO, "headwater.worker")
    async with proxy(any_store.url) as link:
        (app, handled), (other, _) = reading(link.url), reading(any_store.url)
        for _ in range(6):
            await any_store.look.xadd(documents.name, {"text": "x" * (SIZE // 3)})
        link.rate = RATE
        async with working(app) as running:
            (loop,) = running.loops.values()
            await eventually(loop.fetcher.large_reply)
            before = link.replies
            # When another worker could claim them
            async with working(other) as others:
                # Then the group's state names the reply
                member = loop.in_flight.the_member()
                await eventually(lambda: _named(any_store, member))
                await eventually(lambda: any_store.settled(stream=documents.name))
    # And it arrived at the first attempt, and no entry was claimed meanwhile
    assert handled == [SIZE // 3] * 6
    assert link.replies - before < 1.1 * 6 * SIZE // 3
    (idle,) = others.loops.values()
    assert idle.endings.telemetry.counters.received == 0
    assert loop.endings.telemetry.counters.lost == 0
    assert "a large reply of the store is under way" in caplog.text
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


async def test_a_stop_hands_back_what_a_large_reply_brings(store: Store) -> None:
    # Given a worker with a large reply under way
    async with proxy(store.url) as link:
        app, handled = reading(link.url)
        for _ in range(3):
            await store.look.xadd(documents.name, {"text": "x" * (SIZE // 3)})
        link.rate = RATE
        async with working(app, grace=600) as running:
            (loop,) = running.loops.values()
            await eventually(loop.fetcher.large_reply)
            before = link.replies
    # When it stops, then it receives the reply to its end and hands back its entries, uncounted
    assert handled == []
    assert link.replies - before < 1.1 * SIZE
    assert [count for _id, _owner, _idle, count in await store.pending(stream=documents.name)] in (
        [],
        [0, 0, 0],
    )
    assert await store.consumers(stream=documents.name) == []


async def _named(store: Store, member: Member) -> bool:
    _hung, transfers = await perform(store.look, read_said(member.stream, member.group))
    return "a large reply of the store is under way, " in transfers.get(member.consumer, "")
