"""What is tried with every client: each test module of a client has a class that inherits this."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.clients import script
from tests.clients.script import Connect
from tests.clients.stands import Stand


@pytest.mark.slow
class Promises:
    """Run with each of ``CLIENTS``, ways to connect by name (conftest.py gives ``connect``)."""

    CLIENTS: ClassVar[dict[str, Connect]]

    @pytest.mark.peer
    @pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
    async def test_it_sees_what_it_sees_on_redis(
        self, connect: Connect, stand: Stand, measure: Stand, *, tls: bool
    ) -> None:
        await script.compare(connect, stand, measure, tls=tls)

    async def test_what_it_hands_back_can_be_claimed(self, connect: Connect, stand: Stand) -> None:
        await script.nack(connect, stand)

    async def test_it_comes_back_after_a_kill(self, connect: Connect, stand: Stand) -> None:
        await script.comes_back(connect, stand)
