"""An XADD with an idempotent id is sent again if its reply is lost, and adds one entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headwater.testing.server import server_process, server_thread
from tests.clients.proxy import Cut, CuttingProxy
from tests.clients.uniform import UniformClient
from tests.guides import outputs

TEA = {"item": "tea"}


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    with server_thread() as server, CuttingProxy(server.port) as proxy:
        yield proxy


@pytest.mark.parametrize("named", [{"idmp": ("shop", b"7")}, {"idmpauto": "shop"}], ids=list)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_idempotent_add_is_sent_again_and_runs_once(
    proxy: CuttingProxy, open_client: Callable[..., UniformClient], named: dict[str, Any], when: Any
) -> None:
    client = open_client(proxy.url)
    await client("ping")
    # Given connections that are closed twice, before or after the entry was added
    proxy.cuts += [Cut(b"XADD", when)] * 2
    # When it is added, then there is no error, and it is there once
    entry_id = await client("xadd", "orders", TEA, **named)
    assert proxy.cuts == []
    assert await client("xrange", "orders") == [(entry_id, {b"item": b"tea"})]
    repeated = (await client("xinfo_stream", "orders"))["iids-duplicates"]
    assert repeated == (2 if when == "after" else 0)
    await client.close()


async def test_a_pipeline_of_idempotent_adds_is_sent_again(
    proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    client = open_client(proxy.url)
    for transaction in (True, False):
        proxy.cuts.append(Cut(b"XADD", "after"))
        pipeline = client.redis.pipeline(transaction=transaction)
        for number in range(3):
            pipeline.xadd("orders", TEA, idmp=("shop", f"{transaction} {number}".encode()))
        ids = await client.call(pipeline.execute)
        assert [entry_id for entry_id, _ in await client("xrange", "orders")][-3:] == ids
    assert await client("xlen", "orders") == 6
    await client.close()


async def test_a_pipeline_with_one_other_add_is_not_sent_again(
    proxy: CuttingProxy, open_client: Callable[..., UniformClient]
) -> None:
    client = open_client(proxy.url)
    await client("ping")
    proxy.cuts.append(Cut(b"XADD", "after"))
    pipeline = client.redis.pipeline(transaction=True).xadd("orders", TEA, idmp=("shop", b"1"))
    pipeline.xadd("orders", TEA)
    with pytest.raises(redis.ConnectionError, match="XADD had been sent and may have run"):
        await client.call(pipeline.execute)
    assert await client("xlen", "orders") == 2
    await client.close()


def test_plain_redis_py_may_also_send_it_again(proxy: CuttingProxy) -> None:
    with redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 3)) as client:
        client.ping()
        proxy.cuts.append(Cut(b"XADD", "after"))
        client.xadd("orders", TEA, idmp=("shop", b"7"))
        assert client.xlen("orders") == 1


@pytest.mark.slow
def test_the_guide_runs() -> None:
    with server_process() as server:
        url = ("redis://localhost:6379", server.url)
        found = outputs("idempotent-producers.md", url)
    assert found == ["True 1\n2 entries, 2 repeated\n", "3600 10000 0\n"]
