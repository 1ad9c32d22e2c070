"""All workers of a group together start no more than their limits allow, and what waits costs nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from headwater.errors import DeclarationError
from headwater.groups.protocol.operation import run
from headwater.groups.reports.pending import PendingState, pending
from headwater.operations.explaining import entry as explain_entry
from headwater.operations.explaining import explained, look
from headwater.worker import Again, App, Batch, Delivery, Limit, Stream
from headwater.worker.store.clocks import sleep
from headwater.worker.testing import AppTest


class Call(msgspec.Struct):
    id: int
    customer: str = ""


calls: Stream[Call] = Stream("calls", Call)


def memory() -> App:
    return App("headwater://memory")


class Starts:
    """When the handlers of an app began, in seconds of the test's clock."""

    def __init__(self) -> None:
        self.t: AppTest
        self.all: list[tuple[float, Call]] = []
        self.counts: list[int] = []

    def began(self, call: Call, delivery: Delivery) -> None:
        self.all.append((self.t.clock.monotonic(), call))
        self.counts.append(delivery.count)

    def times(self, customer: str | None = None) -> list[float]:
        return [at for at, call in self.all if customer in (None, call.customer)]


def most_in(times: Sequence[float], seconds: float) -> int:
    """Return how many of the times are within any interval of this length."""
    ordered = sorted(times)
    return max(
        sum(1 for other in ordered[n:] if other - one < seconds - 1e-6)
        for n, one in enumerate(ordered)
    )


def declare(app: App, starts: Starts, **options: Any) -> Any:
    @app.consumer(calls, group="g", **options)
    async def call_out(call: Call, delivery: Delivery) -> None:
        starts.began(call, delivery)

    return call_out


# --- by rate --------------------------------------------------------------------------------------


async def test_entries_start_at_the_rate_of_their_limit() -> None:
    app, starts = memory(), Starts()
    handler = declare(app, starts, limit=Limit(10, per="1s"))
    async with app.test() as starts.t:
        await starts.t.send(calls, *(Call(n) for n in range(40)))
        await starts.t.advance("3900ms")
        assert len(starts.all) == 40
        assert starts.t.pending(handler) == {}
    assert most_in(starts.times(), 1) == 10
    assert [round(at, 3) for at in starts.times()] == [n / 10 for n in range(40)]
    assert set(starts.counts) == {1}


async def test_tokens_that_a_busy_process_has_not_used_are_not_used_later() -> None:
    """A process gets tokens for what its slots start in a moment. If they become busy instead, the tokens are old when a
    slot is free, and new ones have come."""
    # Given quick handlers, of which the 30th takes half a second, in which all tokens come again
    app, starts = memory(), Starts()

    @app.consumer(calls, group="g", concurrency=1, limit=Limit(100, per="1s", burst=40))
    async def call_out(call: Call, delivery: Delivery) -> None:
        starts.began(call, delivery)
        if call.id == 30:
            await sleep(starts.t.clock, 0.5)

    async with app.test() as starts.t:
        await starts.t.send(calls, *(Call(n) for n in range(20)))
        await starts.t.advance("1s")
        # When more arrive than there are tokens
        await starts.t.send(calls, *(Call(n) for n in range(20, 120)))
        await starts.t.advance("3s")
        # Then never more start at once than the burst, and all start once
        assert [call.id for _at, call in starts.all] == [*range(120)]
    for seconds in (0.001, 0.1, 0.5):
        assert most_in(starts.times(), seconds) <= 40 + 100 * seconds


async def test_a_burst_may_start_at_once_after_a_pause() -> None:
    app, starts = memory(), Starts()
    declare(app, starts, limit=Limit(10, per="1s", burst=5))
    async with app.test() as starts.t:
        for _ in range(2):
            await starts.t.send(calls, *(Call(n) for n in range(15)))
            await starts.t.advance("10s")
    assert starts.times()[:5] == [0.0] * 5
    assert starts.times()[15:20] == [10.0] * 5
    assert most_in(starts.times(), 1) == 5 + 9


async def test_a_backlog_under_a_limit_stays_unread() -> None:
    # Given more entries than a limit allows in a long time
    app, starts = memory(), Starts()
    declare(app, starts, limit=Limit(10, per="1s"), concurrency=4)
    async with app.test() as starts.t:
        await starts.t.send(calls, *(Call(n) for n in range(2_000)))
        await starts.t.advance("20s")
        (group,) = starts.t.look.xinfo_groups("calls")
        counters = app.statistics().consumers[0].counters
    # Then the workers have read what they start next, and nothing twice
    assert len(starts.all) == 201
    assert group["lag"] >= 2_000 - 201 - 4
    assert counters.received <= 201 + 4
    assert counters.limited == 0


async def test_each_key_has_its_own_limit_and_delays_no_other() -> None:
    # Given a long backlog of one customer, and a few calls of others behind it
    app, starts = memory(), Starts()
    handler = declare(app, starts, limit=Limit(1, per="1s", by="customer"), concurrency=4)
    async with app.test() as starts.t:
        busy = [Call(n, "busy") for n in range(50)]
        others = [Call(n, f"c{n}") for n in range(20)]
        await starts.t.send(calls, *busy, *others)
        assert {call.customer for _at, call in starts.all} == {
            "busy",
            *(c.customer for c in others),
        }
        assert len(starts.t.pending(handler)) == 49
        await starts.t.advance("49s")
        counters = app.statistics().consumers[0].counters
        assert len(starts.all) == 70
        # Each was read once, parked once until its turn, and read again then
        assert counters.received == 70 + 49
        assert counters.limited == 49
    assert starts.times("busy") == pytest.approx([float(n) for n in range(50)], abs=0.01)
    assert set(starts.counts) == {1}


async def test_a_key_may_be_a_function_and_none_is_not_limited() -> None:
    app, starts = memory(), Starts()
    limit = Limit(1, per="1m", by=lambda call: call.customer or None)
    declare(app, starts, limit=limit)
    async with app.test() as starts.t:
        await starts.t.send(calls, *(Call(n) for n in range(30)), Call(1, "a"), Call(2, "a"))
        assert len(starts.all) == 31


async def test_a_retry_is_a_start() -> None:
    app, starts = memory(), Starts()

    @app.consumer(calls, group="g", limit=Limit(1, per="1s"), retry=None)
    async def call_out(call: Call, delivery: Delivery) -> None:
        starts.began(call, delivery)
        if delivery.count < 3:
            raise ValueError("not yet")

    async with app.test() as starts.t:
        await starts.t.send(calls, Call(1))
        await starts.t.advance("5s")
    assert starts.times() == pytest.approx([0, 1, 2], abs=0.01)
    assert starts.counts == [1, 2, 3]


@pytest.mark.slow
async def test_several_limits_hold_together() -> None:
    app, starts = memory(), Starts()
    declare(
        app,
        starts,
        limit=[
            Limit(10, per="1s"),
            Limit(2, per="1s", by="customer"),
            Limit(30, per="1m", burst=30),
        ],
    )
    async with app.test() as starts.t:
        await starts.t.send(calls, *(Call(n, f"c{n % 10}") for n in range(100)))
        await starts.t.advance("30s")
        times = starts.times()
        assert most_in(times, 1) <= 10
        assert most_in(starts.times("c3"), 1) <= 2
        assert len([at for at in times if at < 1.5]) >= 10
        assert 30 <= len(times) <= 46
        await starts.t.advance("3m")
        assert len(starts.all) == 100
    assert set(starts.counts) == {1}


async def test_the_rate_of_a_stream_with_partitions_holds_for_all_of_them() -> None:
    app, starts = memory(), Starts()
    parted = Stream("parted", Call, partitions=4, key=lambda call: call.customer)

    @app.consumer(parted, group="g", limit=Limit(10, per="1s"))
    async def call_out(call: Call, delivery: Delivery) -> None:
        starts.began(call, delivery)

    async with app.test() as starts.t:
        await starts.t.send(parted, *(Call(n, f"c{n}") for n in range(40)))
        await starts.t.advance("10s")
    assert len(starts.all) == 40
    assert most_in(starts.times(), 1) <= 10


async def test_a_batch_takes_its_size() -> None:
    app, sizes = memory(), []

    @app.batch(calls, group="g", size=10, linger="100ms", limit=Limit(10, per="1s", burst=10))
    async def call_out(rows: Batch[Call]) -> None:
        sizes.append((t.clock.monotonic(), len(rows)))

    async with app.test() as t:
        await t.send(calls, *(Call(n) for n in range(30)))
        await t.advance("4s")
    assert sizes[0] == (0.0, 10)
    assert sum(size for _at, size in sizes) == 30
    assert sum(size for at, size in sizes if at <= 1.0) <= 20


async def test_keys_stay_in_order_under_a_limit() -> None:
    app, starts = memory(), Starts()
    declare(
        app,
        starts,
        order_by=lambda call: call.customer,
        limit=[Limit(5, per="1s"), Limit(1, per="1s", by="customer")],
    )
    async with app.test() as starts.t:
        await starts.t.send(calls, *(Call(n, f"c{n % 3}") for n in range(30)))
        await starts.t.advance("30s")
    assert len(starts.all) == 30
    for customer in ("c0", "c1", "c2"):
        ids = [call.id for _at, call in starts.all if call.customer == customer]
        assert ids == sorted(ids)
        assert most_in(starts.times(customer), 1) == 1


async def test_what_expires_while_it_waits_takes_no_token() -> None:
    app, starts = memory(), Starts()
    declare(app, starts, limit=Limit(1, per="10s"), expires="25s", concurrency=2)
    async with app.test() as starts.t:
        await starts.t.send(calls, *(Call(n) for n in range(100)))
        await starts.t.advance("26s")
        assert starts.times() == pytest.approx([0, 10, 20], abs=0.01)
        await starts.t.send(calls, Call(1000))
        await starts.t.advance("5s")
        assert starts.times()[-1] == pytest.approx(30, abs=0.2)
        assert app.statistics().consumers[0].counters.expired == 97


async def test_a_suspected_poison_message_is_limited_too() -> None:
    app, starts = memory(), Starts()
    gate = asyncio.Event()

    @app.consumer(
        calls, group="g", limit=[Limit(1, per="1m"), Limit(concurrent=1)], claim_after="10s"
    )
    async def call_out(call: Call, delivery: Delivery) -> None:
        starts.began(call, delivery)
        if len(starts.all) < 3:
            await gate.wait()

    async with app.test() as starts.t:
        await starts.t.send(calls, Call(1))
        for _ in range(2):
            starts.t.crash(call_out)
            await starts.t.advance("2m")
        assert len(starts.all) == 3
        assert starts.t.pending(call_out) == {}
    assert most_in(starts.times(), 60) == 1


# --- what runs at once ----------------------------------------------------------------------------


class Running:
    """Handlers that run until they are told to end."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: list[int] = []
        self.gates: dict[int, asyncio.Event] = {}

    def end(self, *ids: int) -> None:
        for one in ids:
            self.gates.setdefault(one, asyncio.Event()).set()

    async def run(self, call: Call) -> None:
        self.now[call.customer] += 1
        self.most[call.customer] = max(self.most[call.customer], self.now[call.customer])
        try:
            await self.gates.setdefault(call.id, asyncio.Event()).wait()
            self.done.append(call.id)
        finally:
            self.now[call.customer] -= 1


def declare_running(app: App, running: Running, **options: Any) -> Any:
    @app.consumer(calls, group="g", **options)
    async def call_out(call: Call) -> None:
        await running.run(call)

    return call_out


async def test_no_more_of_a_key_run_at_once() -> None:
    app, running = memory(), Running()
    handler = declare_running(app, running, limit=Limit(concurrent=3, by="customer"))
    async with app.test() as t:
        await t.send(calls, *(Call(n, "a") for n in range(10)), Call(100, "b"))
        assert running.now == {"a": 3, "b": 1}
        for n in range(10):
            running.end(n)
            await t.settle()
            assert running.now["a"] == min(3, 9 - n)
        assert sorted(running.done) == list(range(10))
        assert len(t.pending(handler)) == 1
        running.end(100)
        await t.settle()
        assert set(t.deliveries(handler)) == {1}
    assert running.most == {"a": 3, "b": 1}


async def test_any_text_can_be_a_key() -> None:
    app, running = memory(), Running()
    handler = declare_running(
        app,
        running,
        limit=[Limit(concurrent=1, by="customer"), Limit(1_000, per="1s", by="customer")],
    )
    names = [
        "",
        "a",
        "a:line",
        "a:waits",
        "a%3Aline",
        "{b}",
        "}{",
        "0",
        "x y\n*",
        "é" * 300,
        "\x00",
    ]
    async with app.test() as t:
        await t.send(calls, *(Call(n, name) for n, name in enumerate(names * 2)))
        assert running.now == dict.fromkeys(names, 1)
        running.end(*range(2 * len(names)))
        await t.advance("5s")
        assert sorted(running.done) == [*range(2 * len(names))]
        assert t.pending(handler) == {}
    assert set(running.most.values()) == {1}


async def test_a_message_whose_key_cannot_be_told_fails() -> None:
    app, seen = memory(), []

    def key(call: Call) -> str:
        raise SystemExit(call.id)

    @app.consumer(calls, group="g", limit=Limit(concurrent=1, by=key), max_deliveries=1)
    async def call_out(call: Call) -> None:
        seen.append(call.id)

    async with app.test() as t:
        await t.send(calls, Call(1))
        await t.add(calls, {"id": "not a number"})
        letters = t.dead(calls)
        assert [letter.error.partition(":")[0] for letter in letters] == [
            "SystemExit",
            "headwater.errors.DecodeError",
        ]
    assert seen == []


async def test_no_more_run_at_once_without_a_key() -> None:
    app, running = memory(), Running()
    declare_running(app, running, limit=Limit(concurrent=3))
    async with app.test() as t:
        await t.send(calls, *(Call(n) for n in range(10)))
        for n in range(10):
            assert running.now[""] == min(3, 10 - n)
            running.end(n)
            await t.advance("100ms")
        assert len(running.done) == 10
    assert running.most == {"": 3}


async def test_the_place_of_a_dead_process_is_free_after_claim_after() -> None:
    app, running = memory(), Running()
    handler = declare_running(
        app, running, limit=Limit(concurrent=1, by="customer"), claim_after="10s"
    )
    async with app.test() as t:
        await t.send(calls, Call(1, "a"), Call(2, "a"))
        assert running.now == {"a": 1}
        t.crash(handler)
        await t.settle()
        running.now.clear()
        await t.advance("9s")
        assert running.now["a"] == 0
        await t.advance("4s")
        assert running.now["a"] == 1
        running.end(1, 2)
        await t.advance("10s")
        assert sorted(running.done) == [1, 2]
    assert running.most == {"a": 1}


async def test_a_long_job_keeps_its_place() -> None:
    app, running = memory(), Running()
    declare_running(app, running, limit=Limit(concurrent=1, by="customer"), claim_after="10s")
    async with app.test() as t:
        await t.send(calls, Call(1, "a"), Call(2, "a"))
        await t.advance("20m")
        assert running.now == {"a": 1}
        running.end(1, 2)
        await t.settle()
        assert running.done == [1, 2]


async def test_a_failed_delivery_gives_its_place_back() -> None:
    app, seen = memory(), []

    @app.consumer(calls, group="g", limit=Limit(concurrent=1, by="customer"))
    async def call_out(call: Call, delivery: Delivery) -> None:
        seen.append((call.id, delivery.count))
        if delivery.count == 1:
            raise Again(after="1m")

    async with app.test() as t:
        await t.send(calls, Call(1, "a"), Call(2, "a"))
        assert seen == [(1, 1), (2, 1)]
        await t.advance("2m")
    assert sorted(seen) == [(1, 1), (1, 2), (2, 1), (2, 2)]


# --- the declaration ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((), {}, "either rate and per"),
        ((5,), {"concurrent": 3, "per": "1s"}, "either rate and per"),
        ((0,), {"per": "1s"}, "above 0"),
        ((-1,), {"per": "1s"}, "above 0"),
        ((float("nan"),), {"per": "1s"}, "above 0"),
        ((float("inf"),), {"per": "1s"}, "above 0"),
        ((True,), {"per": "1s"}, "above 0"),
        (("100",), {"per": "1s"}, "above 0"),
        ((100,), {}, "needs per"),
        ((100,), {"per": "0s"}, "per="),
        ((100,), {"per": "second"}, "per="),
        ((100,), {"per": "1s", "burst": 0}, "burst"),
        ((100,), {"per": "1s", "burst": 1.5}, "burst"),
        ((2_000_000,), {"per": "1s"}, "million"),
        ((1,), {"per": "366d", "burst": 2}, "366 days"),
        ((), {"concurrent": 0}, "concurrent"),
        ((), {"concurrent": -3}, "concurrent"),
        ((), {"concurrent": 1.5}, "concurrent"),
        ((), {"concurrent": 1_001}, "concurrent"),
        ((), {"concurrent": 3, "per": "1s"}, "belong to a rate"),
        ((), {"concurrent": 3, "burst": 2}, "belong to a rate"),
        ((), {"concurrent": 3, "by": ""}, "by must be"),
        ((), {"concurrent": 3, "by": 7}, "by must be"),
    ],
)
def test_wrong_limits_are_refused(
    arguments: tuple[Any, ...], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(DeclarationError, match=words):
        Limit(*arguments, **options)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (100, "must be a Limit"),
        ([], "must be a Limit"),
        ([Limit(concurrent=1), 3], "must be a Limit"),
        ([Limit(concurrent=1)] * 9, "at most 8"),
        (Limit(concurrent=1, by="custmer"), "no attribute 'custmer', only id, customer"),
    ],
)
def test_wrong_declarations_are_refused(limit: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        declare(memory(), Starts(), limit=limit)


def test_what_runs_at_once_in_partitions_needs_a_key() -> None:
    parted = Stream("parted", Call, partitions=4, key=lambda call: call.customer)
    with pytest.raises(DeclarationError, match="by="):
        memory().consumer(parted, group="g", limit=Limit(concurrent=3))(_handler)


async def _handler(call: Call) -> None: ...


# --- what operators see ---------------------------------------------------------------------------


def _explained(t: AppTest) -> list[tuple[str, bool]]:
    (answer,) = explained(run(t.look, look("calls")))
    return [(str(cause.name), cause.normal) for cause in answer.causes]


@pytest.mark.parametrize(
    "limit",
    [
        Limit(1, per="1m"),
        Limit(1, per="1m", by="customer"),
        Limit(concurrent=1),
        Limit(concurrent=1, by="customer"),
    ],
    ids=repr,
)
async def test_what_waits_for_a_limit_is_healthy_and_says_so(limit: Limit) -> None:
    app, running = memory(), Running()
    declare_running(app, running, limit=limit)
    async with app.test() as t:
        await t.send(calls, Call(1, "a"), Call(2, "a"), Call(3, "a"))
        await t.advance("5s")
        assert _explained(t) == [("limited", True)]
        (group,) = run(t.look, pending("calls", "g"))
        if limit.by is not None:
            states = [one.state for one in group.entries]
            assert states == [PendingState.IN_FLIGHT, PendingState.LIMITED, PendingState.LIMITED]
            (answer,) = run(t.look, explain_entry("calls", group.entries[1].id, "g"))
            assert answer.statement == "it waits for the limit of its consumer, after 0 deliveries"
            assert [cause.name for cause in answer.causes] == ["limited"]
        running.end(1, 2, 3)
        await t.advance("5m")
        assert sorted(running.done) == [1, 2, 3]
        assert _explained(t) == []
