"""ioredis 6, in node."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.clients.node_process import connecting
from tests.clients.scenarios import ClientScenarios
from tests.clients.script import Connect


@pytest.mark.peer
class TestIoredis(ClientScenarios):
    CLIENTS: ClassVar[dict[str, Connect]] = {"node": connecting("ioredis")}
