"""Repeated log lines are limited per template and minute, and the omitted ones are counted."""

from __future__ import annotations

import logging

import pytest

from headwater.common.limits import LIMITED_LOG_LINES, LIMITED_LOG_SECONDS
from headwater.common.log_limit import LimitedLog
from headwater.testing.clock import ManualClock

TEMPLATE = "client %d is disconnected"


def summary(count: int) -> str:
    return (
        f"{count} more lines like this one were left out within {LIMITED_LOG_SECONDS} seconds: "
        f"{TEMPLATE}"
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> LimitedLog:
    caplog.set_level(logging.INFO, "limited")
    return LimitedLog(logging.getLogger("limited"), monotonic=clock.monotonic)


def test_lines_above_the_limit_are_counted(
    log: LimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a client that causes the same line a hundred thousand times within a minute
    for number in range(100_000):
        log.warning(TEMPLATE, number)

    # Then ten are written
    assert caplog.messages == [TEMPLATE % number for number in range(LIMITED_LOG_LINES)]

    # And when the minute is over, one line says how many were left out
    log.report()
    clock.advance(LIMITED_LOG_SECONDS)
    for _ in range(2):
        log.report()
    assert caplog.messages[LIMITED_LOG_LINES:] == [summary(100_000 - LIMITED_LOG_LINES)]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_the_next_line_after_the_minute_follows_the_count(
    log: LimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(LIMITED_LOG_LINES + 3):
        log.info(TEMPLATE, number)
    clock.advance(LIMITED_LOG_SECONDS)
    log.info(TEMPLATE, 99)
    assert caplog.messages[LIMITED_LOG_LINES:] == [summary(3), TEMPLATE % 99]


def test_a_line_of_another_template_is_not_limited(
    log: LimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        log.info(TEMPLATE, number)
    log.info("another")
    assert caplog.messages[-1] == "another"


def test_setting_the_wall_clock_does_not_change_the_limit(
    log: LimitedLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        clock.jump(3600)
        log.info(TEMPLATE, 1)
    assert len(caplog.messages) == LIMITED_LOG_LINES
