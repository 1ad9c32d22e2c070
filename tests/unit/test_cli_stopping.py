"""A signal stops a command, also if it interrupts the begin or the end of a wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from headwater.cli.pipeline import stop_on_signals

STOPPING = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers_restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOPPING}
    yield
    assert {number: signal.getsignal(number) for number in STOPPING} == before


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_sets_the_event_that_the_main_thread_is_about_to_wait_for(
    number: signal.Signals,
) -> None:
    with stop_on_signals() as stop:
        # Given a main thread that holds the event's lock, as `Event.wait` does when it begins and ends
        with stop._cond:  # type: ignore[attr-defined]
            # When a signal arrives
            signal.raise_signal(number)
        # Then the wait ends
        assert stop.wait(60)
    assert stop.is_set()


def test_a_second_signal_interrupts() -> None:
    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    # And the event is set when the block has ended, however soon that is
    assert stop.is_set()


def test_without_a_signal_the_event_is_not_set() -> None:
    with stop_on_signals() as stop:
        pass
    assert not stop.is_set()
