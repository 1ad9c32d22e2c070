"""Polls that find nothing are delayed, and cost little."""

from __future__ import annotations

from headwater.spark.core.idle import LONGEST_PAUSE_S, IdlePauses
from headwater.testing.clock import ManualClock


class Polls:
    """Polls with a clock that only they advance. ``slept`` has the pause before each."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.slept: list[float] = []
        self.pauses = IdlePauses(clock=self.clock.monotonic, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept[-1] = round(seconds, 6)
        self.clock.advance(seconds)

    def poll(self, *, found: bool, took: float = 0.0) -> None:
        self.slept.append(0.0)
        self.pauses.wait()
        self.clock.advance(took)
        self.pauses.polled(found=found)


def test_pauses_double_up_to_a_bound_and_end_with_something_new() -> None:
    polls = Polls()
    for _ in range(8):
        polls.poll(found=False)
    polls.poll(found=True)
    polls.poll(found=False)

    assert polls.slept == [0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1, 0.1, 0]


def test_time_that_has_passed_since_a_poll_counts() -> None:
    polls = Polls()
    for _ in range(8):
        polls.poll(found=False)
    polls.clock.advance(LONGEST_PAUSE_S / 2)
    polls.poll(found=False)
    polls.clock.advance(10)
    polls.poll(found=False)

    assert polls.slept[-2:] == [0.05, 0]


def test_slow_polls_take_a_fifth_of_the_time() -> None:
    polls = Polls()
    polls.poll(found=False, took=0.2)
    polls.poll(found=False, took=5)
    polls.poll(found=False)

    assert polls.slept == [0, 0.8, 1]
