"""Handler slots and the buffer that they share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headwater.groups.membership.member import Member
from headwater.groups.protocol.capabilities import Capabilities
from headwater.groups.reading.claiming import Delivered
from headwater.worker.declare.owned import Owned, State
from headwater.worker.leases.freshness import Freshness
from headwater.worker.run.pool import Pool
from headwater.worker.store.clocks import LoopClock
from headwater.worker.store.waiting import Changes


def an_entry(number: int = 1) -> Owned:
    member = Member("s", "g", "c", 1_000, Capabilities(verbs=True, cluster=False, server="test"))
    owned = Owned(Delivered(b"%d-0" % number, [], 1, False, False), member)
    owned.enter(State.WAITING)
    return owned


async def never() -> None:
    """Fail the test: a pool whose entries were renewed recently must not renew them."""
    raise AssertionError


async def turns(count: int = 5) -> None:
    """Let the slots run until they wait."""
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def a_pool(
    size: int, handled: list[bytes]
) -> AsyncIterator[tuple[Pool, list[asyncio.Task[None]]]]:
    """A pool with waiting slots, and their tasks."""

    async def run(owned: Owned) -> None:
        assert owned.task is asyncio.current_task()
        handled.append(owned.id)

    fresh = Freshness(
        "g of s", clock=LoopClock(), lease_ms=20_000, claim_after_ms=60_000, renew=never
    )
    pool = Pool(size, run, lambda: None, Changes(), fresh)
    tasks = pool.start("test")
    await turns()
    try:
        yield pool, tasks
    finally:
        pool.dismiss()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_entries_are_handled_in_order_of_arrival() -> None:
    handled: list[bytes] = []
    async with a_pool(3, handled) as (pool, _tasks):
        for number in range(10):
            pool.offer([an_entry(number)])
        await turns(20)
        assert handled == [f"{number}-0".encode() for number in range(10)]
        assert pool.hungry


async def test_an_entry_is_handled_if_the_slot_woken_for_it_is_cancelled() -> None:
    handled: list[bytes] = []
    async with a_pool(2, handled) as (pool, tasks):
        # Given an entry for which the first slot is about to wake
        pool.offer([an_entry()])
        # When that slot is cancelled before it runs
        tasks[0].cancel()
        await turns()
        # Then the other one handles the entry
        assert handled == [b"1-0"]


async def test_an_entry_lost_while_it_waited_is_not_handled() -> None:
    handled: list[bytes] = []
    async with a_pool(1, handled) as (pool, _tasks):
        lost, kept = an_entry(1), an_entry(2)
        pool.offer([lost])
        pool.offer([kept])
        lost.enter(State.SETTLING)
        await turns()
        assert handled == [kept.id]
        assert kept.task is None
