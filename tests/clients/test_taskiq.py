"""taskiq-redis 1.2 and taskiq 0.13: a stream as the queue of tasks, results beside it.

Its broker takes over what others hold under a lock that it releases by a script, so that it needs a
server with Lua: `pip install headwater[lua]`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from tests.clients.stands import Stand, Where

SECONDS = 20


def broker_for(where: Where, consumer: str, **options: Any) -> Any:
    tls: dict[str, Any] = {**where.ssl_options}
    results: Any = RedisAsyncResultBackend(where.url, **tls)
    broker = RedisStreamBroker(
        where.url,
        consumer_group_name="workers",
        consumer_name=consumer,
        consumer_id="0",
        xread_block=100,
        **tls,
        **options,
    )
    return broker.with_result_backend(results)


async def story(stand: Stand, where: Where) -> list[Any]:
    """Tasks that work and fail, and one that another worker took and never ended."""
    await asyncio.to_thread(stand.empty)
    seen: list[Any] = []
    broker = broker_for(where, "one", idle_timeout=1)

    @broker.task(task_name="double")  # type: ignore[untyped-decorator]
    async def double(number: int) -> int:
        if number < 0:
            raise ValueError("less than nothing")
        return 2 * number

    await broker.startup()
    task = await double.kiq(21)
    with stand.look() as look:
        look.xreadgroup("workers", "dead", {"taskiq": ">"})
    worker = asyncio.create_task(run_receiver_task(broker))
    try:
        for sent in (await double.kiq(4), await double.kiq(-1), task):
            result = await sent.wait_result(timeout=SECONDS)
            seen.append((result.is_err, result.return_value, str(result.error)))
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await broker.shutdown()
    with stand.look() as look:
        pending: Any = look.xpending("taskiq", "workers")
        seen.append(pending["pending"])
    return seen


@pytest.mark.peer
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_it_sees_what_it_sees_on_redis(stand: Stand, measure: Stand, *, tls: bool) -> None:
    there = await story(measure, measure.where)
    assert [one[0] for one in there[:3]] == [False, True, False]
    assert await story(stand, stand.secured if tls else stand.where) == there
