"""A stop and a read that is about to begin: whichever comes first, nothing is taken and left behind."""

from __future__ import annotations

import asyncio

import pytest

from headwater.groups.claiming import Delivered
from headwater.groups.member import Member
from headwater.groups.operation import Operation
from headwater.groups.trimmed import unread_lost
from tests.worker.apps import Order, Store, eventually, orders, worker


async def test_a_stop_while_the_reader_looks_for_losses_reads_nothing_more(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a worker whose reader asks, before it reads, whether entries were trimmed unread
    app = any_store.app()
    stopping: list[asyncio.Task[None]] = []

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None: ...

    running = worker(app)
    (loop,) = running.loops.values()

    def look(member: Member) -> Operation[int]:
        # When it is told to stop at that moment
        stopping.append(asyncio.create_task(running.stop(10)))
        return (yield from unread_lost(member))

    monkeypatch.setattr("headwater.worker.fetch.unread_lost", look)
    running.start()
    await eventually(lambda: stopping)
    reader = loop.fetcher.reader
    assert reader is not None
    reads: list[int] = []
    read = reader.read

    def counted(*, limit: int, now: float) -> Operation[list[Delivered]]:
        reads.append(limit)
        return read(limit=limit, now=now)

    monkeypatch.setattr(reader, "read", counted)
    await stopping[0]

    # Then no read comes after that, which would get entries for a consumer that is gone
    assert reads == []
    assert await any_store.consumers() == []
