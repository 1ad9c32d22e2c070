"""Ticks of cron expressions while the clocks of their zone are set forward or back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from headwater import App, Tick
from headwater.groups.settling.ticks import TicksState
from headwater.testing.clock import START_MS, ManualClock
from headwater.worker.declare.schedules import Cron, Schedule

MINUTE = 60_000

CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 2, 18, 2, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("UTC", datetime(2026, 3, 29, 1, tzinfo=UTC)),
]
"""Zones, each with a moment at which its clocks change, or with any moment if they do not change."""

EXPRESSIONS = [
    *("30 2 * * *", "15,45 2 * * *", "30 1 * * *", "45 1 * * *", "30 1,2 * * *", "15 1-3 * * *"),
    *("0 0 * * *", "30 0,23 * * *", "0 2 * * *", "59 1 * * *"),
    *("0 * * * *", "30 * * * *", "*/20 2 * * *", "* 2 * * *", "*/7 * * * *", "* * * * *"),
]


def shown(times: list[int], zone: str) -> list[str]:
    return [datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).isoformat() for at in times]


@cache
def minutes(zone: str, change: datetime) -> list[tuple[int, datetime]]:
    """Return each minute from a day and a half before the change to a day and a half after it, and what clocks show."""
    first = change - timedelta(hours=36)
    moments = [first + timedelta(minutes=n) for n in range(72 * 60 + 1)]
    return [(round(at.timestamp() * 1000), at.astimezone(ZoneInfo(zone))) for at in moments]


def values(field: str, size: int) -> set[int]:
    """The values of a field of an expression that is ``*``, ``*/n``, ``a-b`` or ``a,b``."""
    if field.startswith("*"):
        return set(range(0, size, int(field[2:] or 1)))
    if "-" in field:
        first, last = map(int, field.split("-"))
        return set(range(first, last + 1))
    return set(map(int, field.split(",")))


@cache
def modelled(expression: str, zone: str, change: datetime) -> list[int]:
    """The ticks around the change, by looking at the clock in each minute."""
    minute, hour, *_days = expression.split()
    fixed = not minute.startswith("*") and not hour.startswith("*")
    in_minutes, in_hours = values(minute, 60), values(hour, 24)

    def matches(local: datetime) -> bool:
        return local.minute in in_minutes and local.hour in in_hours

    ticks = []
    before: datetime | None = None
    for ms, local in minutes(zone, change):
        clock = local.replace(tzinfo=None, fold=0)
        due = matches(clock) and not (fixed and local.fold)
        while fixed and before is not None and (before := before + timedelta(minutes=1)) < clock:
            due = due or matches(before)  # clocks were set forward over it
        before = clock
        if due:
            ticks.append(ms)
    return ticks


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_ticks_around_a_change_of_clocks_are_those_that_a_look_in_each_minute_finds(
    zone: str, change: datetime, expression: str
) -> None:
    times = Cron(expression, zone)
    expected = modelled(expression, zone, change)
    looks = [ms for ms, _local in minutes(zone, change)]

    # When each tick is asked for after the tick before it
    found: list[int] = []
    at = times.after(looks[0] - 1)
    while at is not None and at <= looks[-1]:
        found.append(at)
        assert found[-2:] == sorted(set(found[-2:])), shown(found[-2:], zone)
        at = times.after(at)

    # Then these are the ticks
    assert shown(found, zone) == shown(expected, zone)

    # And from any other moment, it is the next of them
    for ms in looks[::29]:
        for moment in (ms - 1, ms, ms + 1, ms + 31_500):
            after = times.after(moment)
            assert after is not None
            assert after > moment
            following = [one for one in expected if one > moment]
            assert not following or after == following[0], shown([moment, after], zone)


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_the_way_back_over_a_change_of_clocks_never_leads_forward(
    zone: str, change: datetime, expression: str
) -> None:
    times = Cron(expression, zone)
    expected = modelled(expression, zone, change)
    for ms, _local in minutes(zone, change)[::47]:
        back = times.back(ms, 5)
        assert back <= ms
        between = [one for one in expected if back <= one < ms]
        # A repeated hour has two ticks for each local time.
        assert back < expected[0] or len(between) <= 2 * 60 + 5


def test_an_expression_with_seconds_and_a_fixed_time_runs_once_a_day() -> None:
    # Given clocks that are set forward on 29 March and back on 25 October
    times = Cron("10 30 2 * * *", "Europe/Berlin")
    spring, autumn = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)

    # When two ticks are asked for
    found = []
    for at in (spring, autumn):
        first = times.after(round(at.timestamp() * 1000))
        assert first is not None
        second = times.after(first)
        assert second is not None
        found += [first, second]

    # Then the skipped one is at the change, and the repeated one is the first
    assert shown(found, "Europe/Berlin") == [
        *("2026-03-29T03:00:00+02:00", "2026-03-30T02:30:10+02:00"),
        *("2026-10-25T02:30:10+02:00", "2026-10-26T02:30:10+01:00"),
    ]


async def test_the_clock_of_a_test_advances_through_a_night_with_a_repeated_hour() -> None:
    # Given a fixed time in the hour that is repeated, and one schedule that runs in both passes
    app = App()
    nights: list[datetime] = []
    hours: list[datetime] = []

    @app.cron("30 2 * * *", timezone="Europe/Berlin")
    async def nightly(tick: Tick) -> None:
        nights.append(tick.time)

    @app.cron("0 */1 27 10 *", timezone="Europe/Berlin")
    async def hourly(tick: Tick) -> None:
        hours.append(tick.time)

    # When the clock advances to the second pass of the hour, in small steps through it, and on
    before = datetime(2024, 10, 26, 12, 1, tzinfo=UTC)
    test = app.test()
    test.clock = ManualClock(round(before.timestamp() * 1000))
    async with test as t:
        await t.advance("13h")
        for _step in range(6):
            await t.advance("10m")
        await t.advance("24h")

    # Then each day has one tick of the fixed time, and the day of the change has 25 hours
    assert [one.isoformat() for one in nights] == [
        *("2024-10-27T02:30:00+02:00", "2024-10-28T02:30:00+01:00"),
    ]
    assert len(hours) == 25


# --- times that go back ---------------------------------------------------------------------------


class Backward:
    """Times whose next tick is always the same one, as from a faulty parser."""

    text = "every never"
    zone: tzinfo = UTC

    def __init__(self, at: int) -> None:
        self.at = at

    def after(self, ms: int) -> int | None:
        return self.at

    def back(self, ms: int, ticks: int) -> int:
        return self.at


def test_no_tick_is_added_that_is_not_after_the_beginning_of_its_schedule() -> None:
    now = START_MS
    state = TicksState(now, "every never", last_ms=now - MINUTE, ticked_ms=None, next_ms=None)
    for at in (now - 2 * MINUTE, now - MINUTE):
        assert Schedule("ticks", Backward(at), "all").to_add(state) == []
    assert Schedule("ticks", Backward(now - 1), "all").to_add(state) == [now - 1]


async def test_times_that_do_not_go_on_make_no_busy_loop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an expression whose next time is before the present
    app = App()
    asked: list[int] = []

    @app.cron("30 2 * * *", name="nightly")
    async def nightly(tick: Tick) -> Any:
        raise AssertionError("no tick is due")

    def after(self: Cron, ms: int) -> int:
        asked.append(ms)
        return START_MS - MINUTE

    monkeypatch.setattr(Cron, "after", after)

    # When five minutes pass
    async with app.test() as t:
        await t.advance("5m")

    # Then the worker looked about once a minute, and said it once
    assert len(asked) <= 20
    assert caplog.text.count("has no tick after") == 1
