"""valkey-py 6.1 and later, sync and asyncio."""

from __future__ import annotations

import pytest
import valkey
import valkey.asyncio

from tests.clients import script
from tests.clients.redis_like import connecting
from tests.clients.script import Connect
from tests.clients.stands import Stand

CLIENTS = {
    "sync": connecting(valkey.Valkey),
    "sync RESP3": connecting(valkey.Valkey, protocol=3),
    "asyncio": connecting(valkey.asyncio.Valkey),
}


@pytest.fixture(params=CLIENTS)
def connect(request: pytest.FixtureRequest) -> Connect:
    return CLIENTS[request.param]


@pytest.mark.peer
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_it_sees_what_it_sees_on_redis(
    connect: Connect, stand: Stand, measure: Stand, *, tls: bool
) -> None:
    await script.compare(connect, stand, measure, tls=tls)


async def test_what_it_hands_back_can_be_claimed(connect: Connect, stand: Stand) -> None:
    await script.nack(connect, stand)


async def test_it_comes_back_after_a_kill(connect: Connect, stand: Stand) -> None:
    await script.comes_back(connect, stand)
