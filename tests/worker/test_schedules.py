"""``@app.every`` and ``@app.cron``: each tick is a message that is added once, whichever worker adds it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from headwater import App, Delivery, Tick
from headwater.errors import DeclarationError
from headwater.messages.keys import ticks_key
from headwater.testing.server import ServerThread
from headwater.worker.declare import schedules
from headwater.worker.declare.schedules import MOST_MISSED, Cron, Every
from tests.worker.apps import Order, Store, buried, eventually, killed, orders, worker, working

SWEEPS = "test.sweep"


@pytest.fixture
def store(any_store: Store) -> Store:
    """An empty store, on each of the four servers."""
    return any_store


def sweeping(store: Store, every: str = "200ms", **options: Any) -> tuple[App, list[int]]:
    """An app with a schedule, and the times for which it was called, in milliseconds."""
    app = store.app()
    called: list[int] = []

    @app.every(every, **options)
    async def sweep(tick: Tick) -> None:
        called.append(round(tick.time.timestamp() * 1000))

    return app, called


async def added(store: Store) -> list[int]:
    """The times of the ticks in the store, by their ids."""
    entries: Any = await store.look.xrange(SWEEPS)
    assert all(one[0].endswith(b"-0") for one in entries)
    return [int(one[0].split(b"-")[0]) for one in entries]


async def declared(store: Store, ago: timedelta, every: str) -> int:
    """Record that the schedule was declared some time ago, when workers ran that are gone. Return the store's time."""
    seconds, _micros = await store.look.time()
    rule = Every(every).text
    since = int((seconds - ago.total_seconds()) * 1000)
    await store.look.hset(ticks_key(SWEEPS), mapping={"rule": rule, f"since {rule}": since})
    return int(seconds * 1000)


# --- on every server ------------------------------------------------------------------------------


@pytest.mark.slow
async def test_several_workers_add_each_tick_once_and_handle_it_once(store: Store) -> None:
    runs = [sweeping(store) for _ in range(3)]
    async with working(runs[0][0]), working(runs[1][0]), working(runs[2][0]):
        await eventually(lambda: sum(len(called) for _app, called in runs) >= 5)
    called = sorted(one for run in runs for one in run[1])
    found = await added(store)
    assert found == list(range(found[0], found[-1] + 1, 200))
    assert called == found[: len(called)]


@pytest.mark.slow
async def test_ticks_go_on_when_a_worker_is_killed(store: Store) -> None:
    app, called = sweeping(store)
    for count in (2, 4):
        running = worker(app)
        running.start()

        def handled(count: int = count) -> bool:
            return len(called) >= count

        await eventually(handled)
        killed(running)
        await buried(running)
    async with working(app):
        await eventually(lambda: len(called) >= 6)
    found = await added(store)
    assert len(set(called)) == len(called)
    assert found == sorted(set(found))
    assert {one % 200 for one in found} == {0}


@pytest.mark.slow
async def test_ticks_are_added_whatever_others_write_to_their_hash(store: Store) -> None:
    # Given values that no worker writes
    app, called = sweeping(store)
    rule = Every("200ms").text
    strange: dict[Any, Any] = {f"since {rule}": b"caf\xe9", "next": b"", b"caf\xe9": b"\0"}
    await store.look.hset(ticks_key(SWEEPS), mapping={**strange, "rule": b"caf\xe9"})
    async with working(app) as running:
        await eventually(lambda: len(called) >= 2 or running.scheduler.failed.done())

        # When they are written again while a worker runs
        await store.look.hset(ticks_key(SWEEPS), mapping=strange)

        # Then ticks are added
        before = len(called)
        await eventually(lambda: len(called) >= before + 2 or running.scheduler.failed.done())
        assert not running.scheduler.failed.done()


async def test_a_tick_of_a_time_that_does_not_exist_ends_no_worker(store: Store) -> None:
    # Given an entry that another client has added with an id after the year 9999
    app = store.app()

    @app.cron("* * * * *", name=SWEEPS, max_deliveries=1)
    async def sweep(tick: Tick) -> None: ...

    await store.look.xadd(SWEEPS, {"time": "?"}, id="18446744073709551614-0")

    # When a worker runs, then the entry is a dead letter, and the worker goes on
    async with working(app) as running:
        await eventually(lambda: store.dead(SWEEPS))
        await eventually(lambda: store.look.hget(ticks_key(SWEEPS), "rule"))
        await running.scheduler.stop()
        assert not running.scheduler.failed.done() or running.scheduler.failed.cancelled()


@pytest.mark.parametrize(
    ("missed", "count"), [("skip", 0), ("last", 1), ("all", 12)], ids=["skip", "last", "all"]
)
async def test_missed_ticks_are_added_by_the_declared_rule(
    store: Store, missed: str, count: int
) -> None:
    # Given a schedule whose workers have not run for twelve intervals, with no tick in these minutes
    seconds, _micros = await store.look.time()
    minutes = next(n for n in range(50, 99) if 300 < seconds % (60 * n) < 60 * n - 300)
    interval = timedelta(minutes=minutes)
    now = await declared(store, 12 * interval, f"{minutes}m")
    app, called = sweeping(store, f"{minutes}m", missed=missed)

    # When a worker runs again
    async with working(app):
        await eventually(lambda: len(called) >= count)
        await eventually(lambda: recorded(store))

    # Then it adds the ticks that the rule says
    period = minutes * 60_000
    expected = [now // period * period - n * period for n in range(count)][::-1]
    assert called == expected == await added(store)


async def recorded(store: Store) -> bool:
    return bool(await store.look.hexists(ticks_key(SWEEPS), "next"))


async def test_after_a_long_pause_the_newest_thousand_ticks_are_added(store: Store) -> None:
    now = await declared(store, timedelta(days=300), "1m")
    app, called = sweeping(store, "1m", missed="all")
    async with working(app):
        await eventually(lambda: len(called) >= MOST_MISSED)
    found = await added(store)
    assert found[-1] >= now // 60_000 * 60_000
    assert found[:MOST_MISSED] == list(range(found[0], found[0] + MOST_MISSED * 60_000, 60_000))


async def test_a_new_schedule_has_missed_nothing(store: Store) -> None:
    app, called = sweeping(store, "300d", missed="all")
    async with working(app):
        await eventually(lambda: recorded(store))
    assert called == [] == await added(store)


async def test_the_rule_that_was_declared_last_is_the_valid_one(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a worker of the former program
    monkeypatch.setattr(schedules, "LOOK_SECONDS", 0.05)
    former, called = sweeping(store, "100ms")
    async with working(former):
        await eventually(lambda: called)

        # When one of the next program declares another interval
        app, _called = sweeping(store, "1h")
        async with working(app):
            await eventually(lambda: "another worker has declared" in caplog.text)
            count = len(await added(store))
            await asyncio.sleep(0.3)
            assert len(await added(store)) == count
    rule: Any = await store.look.hget(ticks_key(SWEEPS), "rule")
    assert rule == b"every 1h"


async def test_ticks_continue_after_the_data_was_deleted(store: Store) -> None:
    app, called = sweeping(store)
    async with working(app):
        await eventually(lambda: called)
        await store.look.flushall()
        count = len(called)
        await eventually(lambda: len(called) > count)
    assert len(set(called)) == len(called)


async def test_a_tick_that_fails_is_retried_and_becomes_a_dead_letter(store: Store) -> None:
    app = store.app()
    attempts: list[int] = []

    @app.every("300d", max_deliveries=2, retry=None)
    async def sweep(delivery: Delivery) -> None:
        attempts.append(delivery.count)
        raise ConnectionError("away")

    await declared(store, timedelta(days=301), "300d")
    async with working(app):
        await eventually(lambda: dead(store))
    assert attempts == [1, 2]


async def dead(store: Store) -> bool:
    return bool(await store.look.xlen(f"{{{SWEEPS}}}.dead"))


# --- the clock of the store -----------------------------------------------------------------------


async def test_the_clock_of_the_store_decides_when_a_tick_is_due(
    manual_clock_server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a store whose clock is years behind the clock of the worker, and stands still
    monkeypatch.setattr(schedules, "LOOK_SECONDS", 0.02)
    app = App(manual_clock_server.url)
    called: list[datetime] = []

    @app.cron("*/10 * * * *")
    def sweep(tick: Tick) -> None:
        called.append(tick.time)

    async with working(app):
        await asyncio.sleep(0.1)
        assert called == []
        manual_clock_server.advance(600)
        await eventually(lambda: called)
    (only,) = called
    assert only.tzinfo is UTC
    assert only.minute % 10 == 0
    assert only.year == 2023


async def test_an_embedded_store_remembers_the_last_tick(tmp_path: Path) -> None:
    called: list[int] = []
    for count in (2, 4):
        app = App(f"headwater://{tmp_path}/store")

        @app.every("100ms")
        async def sweep(tick: Tick) -> None:
            called.append(round(tick.time.timestamp() * 1000))

        def handled(count: int = count) -> bool:
            return len(called) >= count

        async with working(app):
            await eventually(handled)
    assert called == sorted(set(called))


# --- without a server -----------------------------------------------------------------------------


@pytest.mark.slow
async def test_advancing_the_clock_of_a_test_by_a_day_makes_288_ticks_of_five_minutes() -> None:
    app = App(name="shop")
    times: list[datetime] = []
    days: list[Tick] = []

    @app.every(timedelta(minutes=5))
    async def sweep(tick: Tick) -> None:
        times.append(tick.time)

    @app.cron("0 3 * * *", timezone="Europe/Berlin", name="closing")
    def close_the_day(tick: Tick, delivery: Delivery) -> None:
        assert delivery.stream == "closing"
        days.append(tick)

    async with app.test() as t:
        await t.advance("24h")
        assert len(times) == 288
        assert {later - one for one, later in pairwise(times)} == {timedelta(minutes=5)}
        await t.advance("24h")
        assert t.deliveries(close_the_day) == [1, 1]
    berlin = ZoneInfo("Europe/Berlin")
    assert [one.time for one in days] == [datetime(2023, 11, n, 3, tzinfo=berlin) for n in (15, 16)]
    assert str(days[0].time) == "2023-11-15 03:00:00+01:00"


async def test_a_tick_survives_a_crash_of_its_worker() -> None:
    app = App()
    attempts: list[int] = []

    @app.every("1h", claim_after="10s")
    async def sweep(tick: Tick, delivery: Delivery) -> None:
        attempts.append(delivery.count)
        if len(attempts) == 1:
            await asyncio.Event().wait()

    async with app.test() as t:
        await t.advance("1h")
        t.crash(sweep)
        await t.advance("11s")
        assert attempts == [1, 2]


def ticks_of(times: Cron, first: datetime, count: int) -> list[str]:
    found = []
    at: int | None = round(first.timestamp() * 1000)
    for _ in range(count):
        assert at is not None
        at = times.after(at)
        assert at is not None
        found.append(datetime.fromtimestamp(at / 1000, times.zone).strftime("%d. %H:%M %z"))
    return found


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("expression", "first", "ticks"),
    [
        # Clocks go from 2:00 to 3:00 on 29 March 2026: a time that does not exist is at the change
        ("30 2 * * *", (3, 28), ["28. 02:30 +0100", "29. 03:00 +0200", "30. 02:30 +0200"]),
        ("*/30 2 * * *", (3, 29), ["30. 02:00 +0200", "30. 02:30 +0200"]),
        ("0 * * * *", (3, 29), ["29. 01:00 +0100", "29. 03:00 +0200", "29. 04:00 +0200"]),
        # and from 3:00 to 2:00 on 25 October: a fixed time is the first of the two, others are both
        ("30 2 * * *", (10, 25), ["25. 02:30 +0200", "26. 02:30 +0100"]),
        ("0 * * * *", (10, 25, 1), ["25. 02:00 +0200", "25. 02:00 +0100", "25. 03:00 +0100"]),
    ],
)
def test_both_changes_of_a_zone_are_followed(
    expression: str, first: tuple[int, ...], ticks: list[str]
) -> None:
    times = Cron(expression, "Europe/Berlin")
    begin = datetime(2026, *first, tzinfo=BERLIN)  # type: ignore[arg-type,misc]
    assert ticks_of(times, begin, len(ticks)) == ticks


@pytest.mark.parametrize(
    ("expression", "options", "complaint"),
    [
        ("0 3 * *", {}, "is not a cron expression: wrong number of fields"),
        ("0 25 * * *", {}, "is not a cron expression: bad hour"),
        ("", {}, "is not a cron expression"),
        (17, {}, "cron=17 must be an expression"),
        ("0 0 30 2 *", {}, "cron='0 0 30 2"),
        ("0 3 * * *", {"timezone": "Mars/Base"}, "timezone='Mars/Base' is not a time zone"),
        ("0 3 * * *", {"timezone": "Europe"}, "timezone='Europe' is not a time zone"),
        ("0 3 * * *", {"timezone": "../etc"}, "is not a time zone"),
        ("0 3 * * *", {"timezone": None}, "timezone=None is not a time zone"),
        ("0 3 * * *", {"missed": "some"}, "missed='some' must be"),
        ("0 3 * * *", {"group": "g"}, "unknown option 'group'"),
        ("0 3 * * *", {"name": "a:hw:b"}, "name='a:hw:b' must be"),
    ],
)
def test_a_wrong_cron_declaration_is_refused(
    expression: Any, options: dict[str, Any], complaint: str
) -> None:
    app = App()
    with pytest.raises(DeclarationError, match=complaint):

        @app.cron(expression, **options)
        async def sweep(tick: Tick) -> None: ...


@pytest.mark.parametrize("interval", ["soon", 5, "10ms", timedelta(0), timedelta(-1), "400d", None])
def test_a_wrong_interval_is_refused(interval: Any) -> None:
    with pytest.raises(DeclarationError, match="every="):
        App().every(interval)


def test_two_schedules_need_two_names() -> None:
    app = App(name="shop")

    def declare() -> None:
        @app.every("1h")
        async def sweep() -> None: ...

    declare()
    with pytest.raises(
        DeclarationError, match=r"'shop\.sweep' already; give the schedule another name="
    ):
        declare()


def test_a_schedule_has_the_name_of_its_function() -> None:
    class Sweeper:
        async def __call__(self, tick: Tick) -> None: ...

        async def sweep(self) -> None: ...

    async def clear(tick: Tick, days: int = 3) -> None: ...

    app = App(name="shop")
    for function in (Sweeper(), Sweeper().sweep, partial(clear, days=7)):
        app.every("1h")(function)
    assert [one.stream.name for one in app.consumers] == [
        "shop.Sweeper",
        "shop.sweep",
        "shop.clear",
    ]


def test_a_function_of_a_schedule_takes_a_tick_or_nothing() -> None:
    app = App()
    with pytest.raises(DeclarationError, match="expects Order, but its stream holds Tick"):

        @app.every("1h")
        async def sweep(order: Order) -> None: ...

    with pytest.raises(DeclarationError, match="no value for parameter 'other'"):

        @app.every("1h")
        async def clear(tick: Tick, other: int) -> None: ...

    with pytest.raises(DeclarationError, match="takes no message"):

        @app.consumer(orders, group="g")
        async def bill() -> None: ...
