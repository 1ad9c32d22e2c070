"""A stop while a read is about to begin: no entry is read and left with the removed consumer."""

from __future__ import annotations

import asyncio

import pytest

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation
from headwater.groups.reading.claiming import Delivered
from headwater.groups.reports.trimmed import unread_lost
from tests.worker.apps import Order, Store, eventually, orders, worker


async def test_a_stop_while_the_reader_checks_for_losses_prevents_the_read(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a worker whose reader checks for entries trimmed unread before it reads
    app = any_store.app()
    stopping: list[asyncio.Task[None]] = []

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None: ...

    running = worker(app)
    (loop,) = running.loops.values()

    def look(member: Member) -> Operation[int]:
        # When it is stopped at that moment
        stopping.append(asyncio.create_task(running.stop(10)))
        return (yield from unread_lost(member))

    monkeypatch.setattr("headwater.worker.read.fetch.unread_lost", look)
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

    # Then no more reads follow, which would assign entries to a removed consumer
    assert reads == []
    assert await any_store.consumers() == []
