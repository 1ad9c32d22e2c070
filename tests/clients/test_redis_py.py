"""redis-py 8.1, sync and asyncio, with its default protocol (RESP3) and with protocol=2."""

from __future__ import annotations

from typing import ClassVar

import redis
import redis.asyncio

from tests.clients.redis_like import connecting
from tests.clients.scenarios import ClientScenarios
from tests.clients.script import Connect


class TestRedisPy(ClientScenarios):
    CLIENTS: ClassVar[dict[str, Connect]] = {
        "sync": connecting(redis.Redis),
        "sync RESP2": connecting(redis.Redis, protocol=2),
        "asyncio": connecting(redis.asyncio.Redis),
        "asyncio RESP2": connecting(redis.asyncio.Redis, protocol=2),
    }
