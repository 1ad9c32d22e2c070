"""The clock of a node: steady time, its offset to the wall clock, and jumps."""

from __future__ import annotations

import logging

import pytest

from headwater.common.clock import SystemClock
from headwater.server.services.turn_clock import ClockJumps, TurnClock
from headwater.testing.clock import START_MS, ManualClock


class Interrupted(ManualClock):
    """A clock with pauses between readings: ``pauses`` lists them, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        shown = super().monotonic()
        if self.pauses:
            self.advance(self.pauses.pop(0))
        return shown


def test_steady_time_advances_with_elapsed_time_whatever_the_wall_clock_shows() -> None:
    clock = ManualClock()
    times = TurnClock(clock)
    for seconds in (3600, -7200, 0.5, 10**9):
        clock.jump(seconds)
        clock.advance(1.5)
        times.begin_command()
    assert times.now_ms == times.now() == START_MS + 6000
    assert times.wall_now() == clock.now_ms()


def test_steady_time_begins_at_the_last_record_if_the_wall_clock_is_behind() -> None:
    behind, ahead = TurnClock(ManualClock()), TurnClock(ManualClock())
    assert behind.start_after(START_MS + 5000) == 5000
    assert (behind.now(), behind.wall_now()) == (START_MS + 5000, START_MS)
    assert behind.monotonic_at(START_MS + 5000) == ManualClock().monotonic()
    assert ahead.start_after(START_MS - 5000) == 0
    assert (ahead.now(), ahead.wall_now()) == (START_MS, START_MS)


def test_an_interrupted_reading_is_not_a_jump() -> None:
    # Given a process that is paused for minutes while it reads the clocks
    clock = Interrupted()
    times = TurnClock(clock)
    clock.pauses = [300, 0, 120, 0, 0]
    times.begin_command()
    # Then time has passed, and the offset of the wall clock is unchanged
    assert times.now_ms == START_MS + 420_000
    assert (times.wall.ahead_ms, times.jumps.count) == (0, 0)


def test_a_clock_that_is_always_read_with_interruptions_is_nearly_right() -> None:
    clock = Interrupted()
    times = TurnClock(clock)
    clock.jump(3600)
    clock.pauses = [30, 0, 7, 0, 0.002, 0, 5, 0, 60, 0, 0]
    times.begin_command()
    assert times.jumps.count == 1
    assert abs(times.wall.ahead_ms - 3_600_000) <= 2


def test_a_difference_of_a_millisecond_does_not_change_the_offset() -> None:
    """A given time is shown as it was given, although the clocks tick at different moments."""
    clock = ManualClock()
    times = TurnClock(clock)
    for seconds in (0.001, -0.001, -0.001, 0.001):
        clock.jump(seconds)
        times.begin_command()
        assert times.wall.ahead_ms == 0
    clock.jump(0.002)
    times.begin_command()
    assert times.wall.ahead_ms == 2


def test_a_steady_time_is_converted_to_a_monotonic_one() -> None:
    clock = ManualClock()
    clock.advance(12.3456)
    times = TurnClock(clock)
    clock.jump(-3600)
    at = times.monotonic_at(times.now() + 1000)
    assert 12.345 <= at - 1 <= 12.3456
    clock.advance(1)
    assert times.now() == START_MS + 13_345


def test_the_machines_clocks_agree() -> None:
    clock = SystemClock()
    times = TurnClock(clock)
    before = clock.now_ms()
    times.begin_turn()
    times.begin_command()
    after = clock.now_ms()
    assert before <= times.now_ms + times.wall.ahead_ms <= after
    assert times.jumps.count == 0
    assert times.monotonic_at(times.now()) <= clock.monotonic()


def test_a_move_of_at_most_a_second_is_not_a_jump() -> None:
    jumps = ClockJumps()
    for moved_ms in (1000, -1000, 3, 0):
        jumps.found(moved_ms, 0)
    assert (jumps.count, jumps.last_ms) == (0, 0)
    jumps.found(-1001, 0)
    assert (jumps.count, jumps.last_ms) == (1, -1001)


def test_a_wall_clock_behind_the_last_record_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headwater.server"):
        TurnClock(ManualClock()).start_after(START_MS + 1000)
        assert caplog.messages == []
        times = TurnClock(ManualClock())
        times.start_after(START_MS + 3_600_000)
    assert (times.jumps.count, times.jumps.last_ms) == (1, -3_600_000)
    assert "3600.000 s behind the last record of the journal" in caplog.text
