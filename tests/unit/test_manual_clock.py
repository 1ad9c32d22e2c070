"""The clock that a test advances."""

from __future__ import annotations

from headwater.testing.clock import ManualClock


def test_a_wait_of_less_than_a_microsecond_ends() -> None:
    # Given a callback that waits for a moment, and again if its time has not quite come
    clock = ManualClock()
    due = clock.monotonic() + 1.0000000001
    called = []

    def look() -> None:
        called.append(clock.monotonic())
        if due > clock.monotonic():
            clock.call_later(due - clock.monotonic(), look)

    clock.call_later(1, look)

    # When time passes, then it stops waiting
    clock.advance(2)
    assert called == [1.0, 1.000001]


def test_a_callback_without_a_delay_runs_at_the_next_advance() -> None:
    clock, called = ManualClock(), []
    clock.call_later(0, lambda: called.append(clock.monotonic()))
    clock.advance(0)
    assert called == [0.0]
