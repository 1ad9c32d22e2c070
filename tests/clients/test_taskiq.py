"""taskiq-redis 1.2 and taskiq 0.13: a stream as the queue of tasks, and results as keys.

Its broker claims the entries of other consumers under a lock that it releases with a script, so it needs
a server with Lua: `pip install headwater[lua]`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from tests.clients.servers import ServerAddress, SharedServer
from tests.waiting import eventually

SECONDS = 20


def broker_for(address: ServerAddress, consumer: str, **options: Any) -> Any:
    tls: dict[str, Any] = {**address.ssl_options}
    results: Any = RedisAsyncResultBackend(address.url, **tls)
    broker = RedisStreamBroker(
        address.url,
        consumer_group_name="workers",
        consumer_name=consumer,
        consumer_id="0",
        xread_block=100,
        **tls,
        **options,
    )
    return broker.with_result_backend(results)


async def transcript(server: SharedServer, address: ServerAddress) -> list[Any]:
    """Run tasks that succeed and fail, and one that another worker received and did not finish."""
    await asyncio.to_thread(server.empty)
    seen: list[Any] = []
    broker = broker_for(address, "one", idle_timeout=1)

    @broker.task(task_name="double")  # type: ignore[untyped-decorator]
    async def double(number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return 2 * number

    await broker.startup()
    task = await double.kiq(21)
    with server.observer() as observer:
        observer.xreadgroup("workers", "dead", {"taskiq": ">"})
    worker = asyncio.create_task(run_receiver_task(broker))
    try:
        for sent in (await double.kiq(4), await double.kiq(-1), task):
            result = await sent.wait_result(timeout=SECONDS)
            seen.append((result.is_err, result.return_value, str(result.error)))
        # A result is stored before its message is acknowledged.
        await asyncio.to_thread(eventually, lambda: not pending_count(server), "an ack")
    finally:
        worker.cancel()
        # Its cancellation may be lost in a read, for which it then waits; closing the connections ends that.
        await asyncio.wait([worker], timeout=SECONDS / 4)
        await broker.shutdown()
        await asyncio.gather(worker, return_exceptions=True)
    return [*seen, pending_count(server)]


def pending_count(server: SharedServer) -> int:
    with server.observer() as observer:
        pending: Any = observer.xpending("taskiq", "workers")
        return int(pending["pending"])


@pytest.mark.peer
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_it_sees_the_same_as_on_redis(
    server: SharedServer, reference: SharedServer, *, tls: bool
) -> None:
    there = await transcript(reference, reference.address)
    assert [one[0] for one in there[:3]] == [False, True, False]
    assert await transcript(server, server.tls_address if tls else server.address) == there
