"""ioredis 6, in node."""

from __future__ import annotations

import pytest

from tests.clients import script
from tests.clients.node_process import connecting
from tests.clients.stands import Stand

CLIENTS = {"node": connecting("ioredis")}
connect = CLIENTS["node"]


@pytest.mark.peer
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_it_sees_what_it_sees_on_redis(stand: Stand, measure: Stand, *, tls: bool) -> None:
    await script.compare(connect, stand, measure, tls=tls)


@pytest.mark.peer
async def test_what_it_hands_back_can_be_claimed(stand: Stand) -> None:
    await script.nack(connect, stand)


@pytest.mark.peer
async def test_it_comes_back_after_a_kill(stand: Stand) -> None:
    await script.comes_back(connect, stand)
