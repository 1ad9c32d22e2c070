"""redis-py's client for asyncio, with the property `AsyncClient.recovery`."""

from __future__ import annotations

import redis.asyncio

from headwater.client.opening import Recovered


class AsyncClient(Recovered, redis.asyncio.Redis):  # type: ignore[misc]  # redis-py's own bases
    """``redis.asyncio.Redis`` with the property `recovery`; `headwater.aio.connect` returns it."""
