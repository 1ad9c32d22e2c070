"""valkey-py 6.1 and later, sync and asyncio."""

from __future__ import annotations

from typing import ClassVar

import valkey
import valkey.asyncio

from tests.clients.redis_like import connecting
from tests.clients.scenarios import ClientScenarios
from tests.clients.script import Connect


class TestValkeyPy(ClientScenarios):
    CLIENTS: ClassVar[dict[str, Connect]] = {
        "sync": connecting(valkey.Valkey),
        "sync RESP3": connecting(valkey.Valkey, protocol=3),
        "asyncio": connecting(valkey.asyncio.Valkey),
    }
