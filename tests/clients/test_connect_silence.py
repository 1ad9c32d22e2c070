"""The timeout of a connection counts silence: a large command or reply over a slow link takes its time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator

import pytest
import redis
import redis.asyncio.retry
from redis.backoff import NoBackoff
from redis.retry import Retry

from headwater.testing.server import server_thread
from tests.clients.proxy import CuttingProxy
from tests.clients.uniform import UniformClient

TIMEOUT = 0.1
SIZE = 600_000
SLOW = 1_500_000
"""So a value takes 0.4 s."""

SILENT = 0.001

Open = Callable[..., UniformClient]


def once(open_client: Open, proxy: CuttingProxy) -> UniformClient:
    """A client that sends no command twice."""
    asynchronous = inspect.getclosurevars(open_client).nonlocals["asynchronous"]
    retry = redis.asyncio.retry.Retry if asynchronous else Retry
    return open_client(proxy.url, socket_timeout=TIMEOUT, retry=retry(NoBackoff(), 0))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with server_thread() as server:
        yield server.port


@pytest.fixture
def proxy(port: int) -> Iterator[CuttingProxy]:
    with CuttingProxy(port) as proxy:
        yield proxy


async def test_a_large_command_may_take_longer_than_the_timeout(
    proxy: CuttingProxy, open_client: Open
) -> None:
    client = open_client(proxy.url, socket_timeout=TIMEOUT)
    await client("ping")
    proxy.rate = SLOW
    assert await client("set", "large", b"x" * SIZE)
    await client.close()


@pytest.mark.slow
async def test_a_large_reply_may_take_longer_than_the_timeout(
    proxy: CuttingProxy, open_client: Open
) -> None:
    client = open_client(proxy.url, socket_timeout=TIMEOUT)
    await client("set", "large", b"x" * SIZE)
    proxy.rate = SLOW
    assert len(await client("get", "large")) == SIZE
    pipeline = client.redis.pipeline(transaction=False)
    pipeline.get("large").get("none").get("large")
    assert [len(one or b"") for one in await client.call(pipeline.execute)] == [SIZE, 0, SIZE]
    await client.close()


async def test_pauses_within_a_reply_may_be_almost_as_long_as_the_timeout(
    proxy: CuttingProxy, open_client: Open
) -> None:
    client = open_client(proxy.url, socket_timeout=TIMEOUT)
    await client("set", "large", b"x" * (SIZE // 3))
    proxy.rate = proxy.piece / (TIMEOUT / 2)
    assert len(await client("get", "large")) == SIZE // 3
    await client.close()


async def test_a_link_that_falls_silent_within_a_reply_raises_a_timeout(
    proxy: CuttingProxy, open_client: Open
) -> None:
    # Given a reply that is under way
    client = once(open_client, proxy)
    await client("set", "large", b"x" * SIZE)
    proxy.rate = SLOW
    transfer = asyncio.create_task(client("get", "large"))
    await asyncio.sleep(2 * TIMEOUT)
    assert not transfer.done()

    # When the link moves nothing more
    proxy.rate = SILENT

    # Then the call fails, and the next one works over a new connection
    with pytest.raises(redis.TimeoutError, match="Timeout reading"):
        await transfer
    proxy.rate = None
    assert await client("ping")
    await client.close()


async def test_a_link_that_takes_no_byte_of_a_command_raises_a_timeout(
    proxy: CuttingProxy, open_client: Open
) -> None:
    client = once(open_client, proxy)
    await client("ping")
    proxy.rate = SILENT
    with pytest.raises(redis.TimeoutError, match=r"Timeout (reading|writing)"):
        await client("set", "large", b"x" * SIZE)
    proxy.rate = None
    assert await client("ping")
    await client.close()


@pytest.mark.slow
async def test_a_peer_that_sends_a_byte_now_and_then_does_not_occupy_a_client_for_ever(
    proxy: CuttingProxy, open_client: Open
) -> None:
    # Given a server whose reply of 600 kB arrives one byte at a time
    client = once(open_client, proxy)
    await client("set", "large", b"x" * SIZE)
    proxy.piece, proxy.rate = 1, 25.0

    # Then the call fails, although no two bytes are apart by the timeout
    with pytest.raises(redis.TimeoutError, match="Timeout reading"):
        await client("get", "large")
    proxy.rate = None
    await client.close()
