"""The tests that run with every client: each client's test module has a subclass."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.clients import script
from tests.clients.script import Connect
from tests.clients.servers import SharedServer


@pytest.mark.slow
class ClientScenarios:
    """Tests that run with each of ``CLIENTS``: name → function that connects. conftest.py provides
    ``connect``."""

    CLIENTS: ClassVar[dict[str, Connect]]

    @pytest.mark.peer
    @pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
    async def test_it_sees_the_same_as_on_redis(
        self, connect: Connect, server: SharedServer, reference: SharedServer, *, tls: bool
    ) -> None:
        await script.compare(connect, server, reference, tls=tls)

    async def test_released_entries_can_be_claimed(
        self, connect: Connect, server: SharedServer
    ) -> None:
        await script.nack(connect, server)

    async def test_it_reconnects_after_the_server_is_killed(
        self, connect: Connect, server: SharedServer
    ) -> None:
        await script.reconnects(connect, server)
