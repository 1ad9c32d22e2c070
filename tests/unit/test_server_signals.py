"""A signal during its start stops a server, also if Python drops what the handler raises."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
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


class Freed:
    """Something whose finalizer a signal interrupts, or that fails."""

    def __init__(self, do: Callable[[], object]) -> None:
        self.do = do

    def __del__(self) -> None:
        self.do()


@pytest.mark.parametrize("number", STOPPING)
def test_a_stop_that_a_finalizer_loses_is_not_printed_as_its_failure(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a server that starts, in a process that prints what finalizers raise
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: printed.append(dropped.exc_type))
    signals = Signals(reopen=unused)
    signals.install()

    # When a signal arrives within a finalizer, and when another finalizer fails
    Freed(lambda: signal.raise_signal(number))
    assert printed == []
    Freed([].pop)

    # Then only the failure is printed, also after an interrupted start
    assert printed == [IndexError]
    signals.ignore()
    Freed([].pop)
    assert printed == [IndexError, IndexError]


@pytest.mark.parametrize("number", STOPPING)
def test_further_signals_do_not_interrupt_the_cleanup(number: signal.Signals) -> None:
    # Given a start that a signal has interrupted
    signals = Signals(reopen=unused)
    signals.install()
    with pytest.raises(StopRequested):
        signal.raise_signal(number)
    # When another one arrives, then it raises nothing
    signal.raise_signal(number)
    signals.ignore()


@pytest.mark.parametrize("number", STOPPING)
def test_after_a_stop_that_a_finalizer_lost_the_next_signal_stops_the_server(
    number: signal.Signals,
) -> None:
    # Given a signal within a finalizer, whose exception Python drops
    signals = Signals(reopen=unused)
    signals.install()
    Freed(lambda: signal.raise_signal(number))
    # When another one arrives, then it interrupts the start
    with pytest.raises(StopRequested, match=number.name):
        signal.raise_signal(number)
    signals.ignore()
