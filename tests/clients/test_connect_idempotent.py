"""An XADD that names itself is sent again when its answer is lost, and adds one entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headwater.testing.server import server_process, server_thread
from tests.clients.faces import Face
from tests.clients.proxy import Cut, CuttingProxy
from tests.guides import outputs

TEA = {"item": "tea"}


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    with server_thread() as server, CuttingProxy(server.port) as proxy:
        yield proxy


@pytest.mark.parametrize("named", [{"idmp": ("shop", b"7")}, {"idmpauto": "shop"}], ids=list)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_named_add_is_sent_again_and_runs_once(
    proxy: CuttingProxy, open_face: Callable[..., Face], named: dict[str, Any], when: Any
) -> None:
    face = open_face(proxy.url)
    await face("ping")
    # Given connections that are lost, twice, before or after the entry was added
    proxy.cuts += [Cut(b"XADD", when)] * 2
    # When it is added, then nobody had to know, and it is there once
    entry_id = await face("xadd", "orders", TEA, **named)
    assert proxy.cuts == []
    assert await face("xrange", "orders") == [(entry_id, {b"item": b"tea"})]
    repeated = (await face("xinfo_stream", "orders"))["iids-duplicates"]
    assert repeated == (2 if when == "after" else 0)
    await face.close()


async def test_a_pipeline_of_named_adds_is_sent_again(
    proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    face = open_face(proxy.url)
    for transaction in (True, False):
        proxy.cuts.append(Cut(b"XADD", "after"))
        pipeline = face.client.pipeline(transaction=transaction)
        for number in range(3):
            pipeline.xadd("orders", TEA, idmp=("shop", f"{transaction} {number}".encode()))
        ids = await face.call(pipeline.execute)
        assert [entry_id for entry_id, _ in await face("xrange", "orders")][-3:] == ids
    assert await face("xlen", "orders") == 6
    await face.close()


async def test_one_add_without_a_name_spoils_the_pipeline(
    proxy: CuttingProxy, open_face: Callable[..., Face]
) -> None:
    face = open_face(proxy.url)
    await face("ping")
    proxy.cuts.append(Cut(b"XADD", "after"))
    pipeline = face.client.pipeline(transaction=True).xadd("orders", TEA, idmp=("shop", b"1"))
    pipeline.xadd("orders", TEA)
    with pytest.raises(redis.ConnectionError, match="XADD had been sent and may have run"):
        await face.call(pipeline.execute)
    assert await face("xlen", "orders") == 2
    await face.close()


def test_redis_py_by_itself_may_send_it_again_too(proxy: CuttingProxy) -> None:
    with redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 3)) as client:
        client.ping()
        proxy.cuts.append(Cut(b"XADD", "after"))
        client.xadd("orders", TEA, idmp=("shop", b"7"))
        assert client.xlen("orders") == 1


def test_the_guide_runs() -> None:
    with server_process() as server:
        url = ("redis://localhost:6379", server.url)
        found = outputs("idempotent-producers.md", url)
    assert found == ["True 1\n2 entries, 2 repeated\n", "3600 10000 0\n"]
