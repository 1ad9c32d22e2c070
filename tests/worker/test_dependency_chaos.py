"""Dependencies are closed, and messages settled, whatever fails, hangs, is cancelled or crashes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from random import Random
from typing import Annotated, Any

import pytest

from headwater.worker import Again, App, Backoff, Delivery, Ending, Middleware, Use
from tests.worker.apps import Order, orders

TRIALS = 3


class Trial:
    """The random numbers of a trial, and how many dependencies it opened and closed."""

    chance = Random()
    opened = closed = 0

    async def maybe_fail(self) -> None:
        """Yield to the event loop a few times, and sometimes raise."""
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)
        if self.chance.random() < 0.1:
            raise ConnectionError("at random")


trial = Trial()


async def pool() -> AsyncIterator[str]:
    await trial.maybe_fail()
    trial.opened += 1
    try:
        yield "pool"
        await trial.maybe_fail()
    finally:
        trial.closed += 1


def settings() -> Iterator[str]:
    trial.opened += 1
    try:
        yield "settings"
    finally:
        trial.closed += 1


class Suppressing:
    """A context manager that sometimes suppresses the handler's error, and sometimes fails to close."""

    async def __aenter__(self) -> str:
        await trial.maybe_fail()
        trial.opened += 1
        return "suppressing"

    async def __aexit__(self, *error: object) -> bool:
        trial.closed += 1
        await trial.maybe_fail()
        return trial.chance.random() < 0.3


async def session(
    pool: Annotated[str, Use(pool, scope="delivery")], settings: Annotated[str, Use(settings)]
) -> AsyncIterator[str]:
    trial.opened += 1
    try:
        yield "session"
    finally:
        trial.closed += 1


class RandomFailures(Middleware):
    def receive(self, delivery: Delivery) -> None:
        if trial.chance.random() < 0.1:
            raise SystemExit(3)

    async def handle(
        self, delivery: Delivery, message: Any, call_next: Callable[[], Awaitable[Any]]
    ) -> Any:
        await trial.maybe_fail()
        result = await call_next()
        await trial.maybe_fail()
        return result

    def after_settle(self, delivery: Delivery, ending: Ending) -> None:
        if trial.chance.random() < 0.1:
            raise ValueError("at random")


async def handle(
    order: Order,
    one: Annotated[str, Use(session, scope="delivery")],
    two: Annotated[str, Use(Suppressing, scope="delivery")],
    three: Annotated[str, Use(settings)],
) -> None:
    outcome = trial.chance.randrange(6)
    if outcome == 0:
        await asyncio.Event().wait()
    elif outcome == 1:
        raise Again("1s")
    elif outcome == 2:
        raise asyncio.CancelledError
    elif outcome == 3:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
    await trial.maybe_fail()


@pytest.mark.slice
@pytest.mark.parametrize("number", range(TRIALS))
async def test_every_opened_dependency_is_closed_and_every_message_is_settled(number: int) -> None:
    seed = Random().randrange(10**9)
    print(f"seed {seed}")
    trial.chance, trial.opened, trial.closed = Random(seed), 0, 0
    logging.getLogger("headwater.worker").setLevel(logging.CRITICAL)
    app = App("headwater://memory", middleware=[RandomFailures()])
    retry = Backoff("100ms", ceiling="1s")
    options: dict[str, Any] = {"timeout": "5s", "retry": retry, "max_deliveries": 50}
    app.consumer(orders, group="g", concurrency=3, **options)(handle)
    try:
        async with app.test() as t:
            for first in range(0, 20, 4):
                await t.send(orders, *(Order(first + n) for n in range(4)))
                if trial.chance.random() < 0.5:
                    t.crash(handle)
                await t.advance(f"{trial.chance.randrange(1, 3000)}ms")
            if trial.chance.random() < 0.7:
                await t.advance("5m")
                assert t.pending(handle) == {}
    finally:
        logging.getLogger("headwater.worker").setLevel(logging.NOTSET)
    assert trial.opened == trial.closed > 0
