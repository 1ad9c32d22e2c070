"""Entries that are parked for a limit do not wait for their turn under it once it is raised, changed or removed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headwater.messages.keys import limited_key
from headwater.worker import App, Delivery, Limit, Stream
from tests.worker.apps import Store, eventually, working

pytestmark = pytest.mark.slow


class Call(msgspec.Struct):
    id: int
    customer: str = ""


calls: Stream[Call] = Stream("calls", Call)

ONE_AN_HOUR = Limit(1, per="1h", by="customer")


def declare(app: App, began: list[tuple[int, int]], **options: Any) -> None:
    @app.consumer(calls, group="g", **options)
    async def call_out(call: Call, delivery: Delivery) -> None:
        began.append((call.id, delivery.count))


async def _park_four(store: Store, began: list[tuple[int, int]]) -> None:
    """Let a worker handle one of five entries, and park the others for an hour and longer."""
    app = store.app()
    declare(app, began, limit=ONE_AN_HOUR)
    async with working(app):
        await app.send_many(calls, [Call(n, "a") for n in range(5)])
        await eventually(lambda: _waiting(store, 4))
    assert len(began) == 1


async def _waiting(store: Store, count: int) -> bool:
    return bool(await store.look.hlen(limited_key("calls", "g")) == count)


@pytest.mark.parametrize(
    "options",
    [
        {"limit": Limit(100, per="1s", by="customer")},
        {"limit": [Limit(concurrent=1, by="customer"), Limit(1_000, per="1s")]},
        {},
    ],
    ids=["raised", "changed", "removed"],
)
async def test_parked_entries_start_when_their_limit_allows_it_now(
    store: Store, options: dict[str, Any]
) -> None:
    # Given entries that are parked for an hour
    began: list[tuple[int, int]] = []
    await _park_four(store, began)

    # When the next worker has another limit
    app = store.app()
    declare(app, began, **options)
    async with working(app):
        await eventually(lambda: store.settled(stream="calls"))

    # Then they run, at their first counted delivery, and none is reported as waiting
    assert sorted(began) == [(n, 1) for n in range(5)]
    assert await _waiting(store, 0)


async def test_parked_entries_stay_parked_when_a_worker_with_the_same_limit_starts(
    store: Store,
) -> None:
    # Given entries that are parked for an hour
    began: list[tuple[int, int]] = []
    await _park_four(store, began)

    # When a worker with the same limit handles an entry with another key
    app = store.app()
    declare(app, began, limit=ONE_AN_HOUR)
    async with working(app) as running:
        await app.send(calls, Call(9, "b"))
        await eventually(lambda: len(began) == 2)

        # Then it has read none of the parked entries
        (loop,) = running.loops.values()
        assert loop.endings.telemetry.counters.received == 1
    assert began[1] == (9, 1)
    assert await _waiting(store, 4)
