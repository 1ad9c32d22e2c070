"""The clock that a test advances."""

from __future__ import annotations

from headwater.testing.clock import ManualClock


def test_who_waits_for_less_than_a_microsecond_is_called_a_little_later() -> None:
    # Given a callback that waits for a moment, again if a hair is missing
    clock = ManualClock()
    due = clock.monotonic() + 1.0000000001
    called = []

    def look() -> None:
        called.append(clock.monotonic())
        if due > clock.monotonic():
            clock.call_later(due - clock.monotonic(), look)

    clock.call_later(1, look)

    # When time passes, then it comes to an end
    clock.advance(2)
    assert called == [1.0, 1.000001]


def test_what_is_to_be_called_at_once_is_called_when_time_passes_at_all() -> None:
    clock, called = ManualClock(), []
    clock.call_later(0, lambda: called.append(clock.monotonic()))
    clock.advance(0)
    assert called == [0.0]
