"""A cancelled call of an asyncio client ends at any step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headwater
from headwater.testing.server import server_thread
from tests.peers import Peer

STEPS = 12
"""Iterations of the event loop, after which a call waits for its reply."""


@pytest.fixture(params=["embedded", "headwater", pytest.param("redis-8.2", marks=pytest.mark.peer)])
def url(request: pytest.FixtureRequest, shared_peer: Callable[[str], Peer]) -> Iterator[str]:
    if request.param == "embedded":
        yield "headwater://memory"
    elif request.param == "headwater":
        with server_thread() as server:
            yield server.url
    else:
        yield shared_peer(request.param).url


async def test_a_call_can_be_cancelled_at_any_step(url: str) -> None:
    async with headwater.aio.connect(url, decode_responses=True) as client:
        ask: Any = client
        assert await ask.echo("warm") == "warm"
        for steps in range(STEPS):
            # When a call is cancelled after some steps
            waiting = asyncio.ensure_future(ask.blpop(["nothing"], timeout=60))
            for _step in range(steps):
                await asyncio.sleep(0)
            waiting.cancel()

            # Then it ends, and its reply is not given to another call
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await ask.echo("mine") == "mine"


async def test_a_time_limit_around_a_call_holds(url: str) -> None:
    async with headwater.aio.connect(url) as client:
        ask: Any = client
        for _attempt in range(STEPS):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await ask.blpop(["nothing"], timeout=60)
