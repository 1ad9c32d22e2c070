"""redis-py's client, with the property `Client.recovery`."""

from __future__ import annotations

import redis

from headwater.client.opening import Recovered


class Client(Recovered, redis.Redis):
    """``redis.Redis`` with the property `recovery`; `headwater.connect` returns it."""
