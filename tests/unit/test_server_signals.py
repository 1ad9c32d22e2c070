"""A signal during its start stops a server, also if Python drops what the handler raises."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headwater.server.signals import IGNORED, REOPENING, STOPPING, Signals, StopRequested


@pytest.fixture(autouse=True)
def handlers_restored() -> Iterator[None]:
    before = {n: signal.getsignal(n) for n in (*STOPPING, *REOPENING, *IGNORED)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def unused(_cause: str) -> None:
    raise AssertionError("no signal arrives while the loop runs")


@pytest.mark.parametrize("number", STOPPING)
def test_a_stop_that_a_finalizer_loses_is_raised_when_the_server_is_ready_to_serve(
    number: signal.Signals,
) -> None:
    async def start() -> None:
        signals = Signals(reopen=unused)
        signals.install()
        # Given a signal in a callback, whose errors Python only prints
        with suppress(StopRequested):
            signal.raise_signal(number)
        # When the start is complete, then the server stops
        with pytest.raises(StopRequested, match=number.name):
            signals.serve(asyncio.get_running_loop(), stop=unused)

    asyncio.run(start())


def test_a_start_without_a_signal_serves() -> None:
    async def start() -> None:
        signals = Signals(reopen=unused)
        signals.install()
        signals.serve(asyncio.get_running_loop(), stop=unused)

    asyncio.run(start())
