"""Simulated interruptions: a worker dies, halts or stops at a chosen await, and the next one continues.

The worker, the engine and the clock are those of `App.test()`, so a trial takes milliseconds and is
deterministic. `Trial` runs a short scenario and interrupts the worker at the n-th step of its event loop,
and the next workers at further steps, if given. Then it checks:

- each message is settled, and nothing is pending or unread
- each result is published once, even if the handler ran twice
- exactly the expected messages are dead letters, each once
- no message ran more often than its scenario and the interruptions explain, or began in a process that
  did not own it
- with an ordered consumer, no message ran before the earlier ones of its key were settled, or after a
  later one was; and the results of a key are in the order of its messages
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, Final
from unittest.mock import patch

import redis

from headwater.worker import App, Delivery
from headwater.worker.loop import Loop, ProcessParts
from headwater.worker.store.clocks import Timers
from headwater.worker.testing import AppTest
from tests.worker.chaos.scenarios import (
    SCENARIOS,
    Order,
    Scenario,
    Shape,
    declare,
    invoices,
    orders,
)
from tests.worker.chaos.stepping import ProcessClock, SteppingLoop, every_command_a_step, process

MOST_STEPS: Final = {Shape.EACH: 220, Shape.BATCH: 220, Shape.ORDER: 500}
"""The last step at which a random trial interrupts a worker. The longest scenarios take a few more."""

REDIS_PY: Final = redis.__version__
"""redis-py reads its version from its installed files for each connection: an eighth of a trial's time."""

PATIENCE_ROUNDS: Final = 60
"""Rounds of five simulated seconds within which every message must be settled."""

HALT_SECONDS: Final = 4.5
"""Longer than ``claim_after``, so that others claim the entries of a halted worker."""

GRACE_SECONDS: Final = 1.0
"""Grace of a stopped worker, shorter than a slow handler."""


class How(StrEnum):
    """What happens to a worker at its step. The next worker starts at the same moment."""

    CRASH = "crash"
    """It is killed, and its connections are closed."""
    POWER = "power"
    """It is killed, and its connections stay open, as when a machine loses power."""
    HALT = "halt"
    """It runs nothing for `HALT_SECONDS` and then continues, as with SIGSTOP and SIGCONT."""
    STOP = "stop"
    """It stops gracefully, as with SIGTERM."""


CRASHES: Final = frozenset({How.CRASH, How.POWER})


class Trial:
    """One scenario, in which successive workers are interrupted at these steps."""

    clock: Timers

    def __init__(self, scenario: str, *steps: int, into: bool = True, how: How = How.CRASH) -> None:
        self.name = scenario
        self.scenario: Scenario = SCENARIOS[scenario]
        self.at = steps
        self._planned = [*steps]
        self.into = into
        self.how = how
        self.done: Counter[How] = Counter()
        """Interruptions that happened, including those by a message. A step beyond the end of the scenario
        does not count."""
        self.runs: Counter[int] = Counter()
        self.steps = 0
        """Steps that the last worker took."""
        self._names: dict[int, str] = {}
        self._closing: list[tuple[ProcessParts, asyncio.Task[None] | None]] = []
        self._ids: list[str] = []
        self._wrong: list[str] = []

    def __repr__(self) -> str:
        steps = "".join(f", {step}" for step in self.at)
        return f"Trial({self.name!r}{steps}, into={self.into}, how={self.how!s})"

    def run(self) -> list[str]:
        """Run the trial. Returns descriptions of failed checks."""
        quick = patch("redis.utils.get_lib_version", lambda: REDIS_PY)
        with quick, every_command_a_step(), asyncio.Runner(loop_factory=SteppingLoop) as runner:
            return runner.run(self._run())

    async def _run(self) -> list[str]:
        self._loop = loop = asyncio.get_running_loop()  # type: ignore[assignment]
        assert isinstance(loop, SteppingLoop), "a trial needs a SteppingLoop"
        app = App("headwater://memory", name="trial")
        async with app.test() as t:
            self._test = t
            self.clock = ProcessClock(t.clock, loop)
            running, app._running = t._the_running(), None  # only this trial starts it
            running._around = running._around._replace(clock=self.clock)
            handler = declare(app, self.scenario, self, into=self.into)
            app._running = running
            self._start()
            for number in range(len(self.scenario.messages)):
                await self._send(number)
                await t.advance(self.scenario.interval)
            for _ in range(PATIENCE_ROUNDS):
                await t.advance("5s")
                if self._settled():
                    break
            loop.disarm()
            self.steps = loop.steps
            wrong = self._wrong + self._judge(handler)
            for worker in t._abandoned:
                worker.abandon()
            loop.finish()
            for parts, backing_up in self._closing[:-1]:
                assert backing_up is not None
                backing_up.cancel()
                await parts.renewer.close()
                await parts.connections.close()
        return wrong

    async def _send(self, number: int) -> None:
        order = self.scenario.order(number)
        if order.do == "unreadable":
            self._ids.append(await self._test.add(orders, {"id": f"not {number}"}))
        else:
            self._ids += await self._test.send(orders, order)

    # --- calls of handlers ------------------------------------------------------------------------

    def began(self, order: Order, delivery: Delivery) -> None:
        """A handler has begun this message."""
        self.runs[order.id] += 1
        owners = self._pending()
        owner = owners.get(delivery.id, "no consumer")
        if owner != self._names[process()]:
            self._wrong.append(f"message {order.id} began in a process, but its owner was {owner}")
        if self.scenario.shape is Shape.ORDER:
            self._judge_turn(order, owners)

    def kill(self) -> None:
        """The running message kills its process."""
        self._crash(process(), how=How.CRASH)

    # --- processes --------------------------------------------------------------------------------

    _loop: SteppingLoop
    _test: AppTest

    def _start(self) -> None:
        """Start a worker process in place of the previous one."""
        step = self._planned.pop(0) if self._planned else None
        self._loop.spawn(self._begin, at=step, then=self._interrupt)

    def _begin(self) -> None:
        running = self._test._the_running()
        (consumer,) = self._test.app.consumers
        former = running.loops.get(consumer)
        if former is not None:
            self._test._abandoned.append(former)
        running._parts = running._make_parts(consumer.lease_ms)
        worker = running.loops[consumer] = running._loop(consumer)
        self._names[process()] = worker.scope.consumer_name
        worker.start()
        running._start_parts()
        self._closing.append((running._parts, running._backing_up))

    def _interrupt(self, number: int) -> None:
        if self.how in CRASHES:
            self._crash(number, how=self.how)
            return
        self.done[self.how] += 1
        if self.how is How.HALT:
            self._loop.halt(number)
            self._test.clock.call_later(HALT_SECONDS, lambda: self._loop.resume(number))
        else:
            (worker,) = self._test._the_running().loops.values()
            self._loop.run_as(number, lambda: self._stop(worker))
        self._start()

    def _stop(self, worker: Loop) -> None:
        stopping = worker.stop(grace=GRACE_SECONDS, at_once=asyncio.Event())
        self._stopping = asyncio.ensure_future(stopping)

    def _crash(self, number: int, *, how: How) -> None:
        self.done[how] += 1
        self._loop.kill(number)
        if how is How.CRASH:
            self._loop.outside(lambda: self._disconnect(number))
        self._loop.outside(self._start)

    def _disconnect(self, number: int) -> None:
        """Close the dead worker's reading connection, as the kernel does."""
        for client in self._test.look.client_list():
            if client["name"] == self._names[number]:
                self._test.look.client_kill_filter(_id=client["id"])

    # --- verdict ----------------------------------------------------------------------------------

    def _settled(self) -> bool:
        (group,) = self._test.look.xinfo_groups("orders") or [{}]
        return bool(group) and group["pending"] == 0 and group["lag"] == 0

    def _judge(self, handler: Callable[..., Any]) -> list[str]:
        t = self._test
        wrong = []
        if not self._settled():
            wrong.append(f"not settled: {t.pending(handler)}, {t.look.xinfo_groups('orders')}")
        numbers = range(len(self.scenario.messages))
        expected_results = [number for number in numbers if not self.scenario.kind(number).dead]
        results = [one.order for one in t.results(invoices)]
        if sorted(results) != (expected_results if self.into else []):
            wrong.append(f"results of {sorted(results)}, expected {expected_results}")
        letters = [dict(letter.fields)[b"id"].decode() for letter in t.dead(orders)]
        expected = [
            f"not {number}" if self.scenario.order(number).do == "unreadable" else str(number)
            for number in numbers
            if self.scenario.kind(number).dead
        ]
        if sorted(letters) != sorted(expected):
            wrong.append(f"dead letters {sorted(letters)}, expected {sorted(expected)}")
        interruptions = self.done.total()
        for number in numbers:
            kind, runs = self.scenario.kind(number), self.runs[number]
            least = 0 if kind.dead else 1
            if not least <= runs <= kind.runs + interruptions:
                wrong.append(f"message {number} ran {runs} times, {interruptions} interruptions")
        if self.scenario.shape is Shape.ORDER:
            wrong += self._judge_keys(results)
        return wrong

    def _pending(self) -> dict[str, str]:
        """Ids of pending entries, with their owners."""
        found: Any = self._test.look.xpending_range("orders", "g", "-", "+", 1_000)
        return {row["message_id"].decode(): row["consumer"].decode() for row in found}

    def _judge_turn(self, order: Order, owners: dict[str, str]) -> None:
        """A message runs after the earlier ones of its key are settled, and before the later ones are."""
        group: Any = self._test.look.xinfo_groups("orders")[0]
        given = group["last-delivered-id"].decode()
        for number, found in enumerate(self._ids):
            if number == order.id or self.scenario.order(number).key != order.key:
                continue
            settled = _place(found) <= _place(given) and found not in owners
            if settled != (number < order.id):
                self._wrong.append(
                    f"message {order.id} ran {'after' if settled else 'before'} {number} was settled"
                )

    def _judge_keys(self, results: list[int]) -> Iterator[str]:
        for key in {self.scenario.order(number).key for number in results}:
            of_key = [one for one in results if self.scenario.order(one).key == key]
            if of_key != sorted(of_key):
                yield f"results of key {key!r} in the order {of_key}"


def _place(id: str) -> tuple[int, ...]:
    return tuple(map(int, id.split("-")))


def each_step(
    scenario: str, *, stride: int = 1, first: int = 1, how: How | None = None
) -> Iterator[Trial]:
    """A trial for each step of the scenario, or for every ``stride``-th. Kinds of death alternate unless
    ``how`` is given."""
    whole = Trial(scenario)
    assert not whole.run(), "the scenario fails without an interruption"
    for number, step in enumerate(range(first, whole.steps + 1, stride)):
        death = How.POWER if (number + step) % 2 else How.CRASH
        yield Trial(scenario, step, how=how or death)


def several(seed: int) -> Iterator[Trial]:
    """Endless random trials, in each of which up to three successive workers are interrupted."""
    chance = random.Random(seed)
    while True:
        scenario = chance.choice(list(SCENARIOS))
        most = MOST_STEPS[SCENARIOS[scenario].shape]
        steps = [chance.randint(1, most) for _ in range(chance.choice((1, 2, 2, 3)))]
        how = chance.choice([How.CRASH, How.CRASH, How.POWER, How.POWER, How.HALT, How.STOP])
        yield Trial(scenario, *steps, into=chance.random() < 0.8, how=how)


class Played(Counter[str]):
    """How many interruptions of each kind happened: ``crashes``, ``halts``, ``stops``."""

    def add(self, trial: Trial) -> None:
        """Add the interruptions of a trial."""
        for how, number in trial.done.items():
            self["crashes" if how in CRASHES else f"{how}s"] += number


def play(trials: Iterable[Trial], *, crashes: int | None = None) -> tuple[Played, list[str]]:
    """Run trials until they end, or until that many crashes happened. Returns the interruptions and the
    failures."""
    done, failures = Played(), []
    for trial in trials:
        if crashes is not None and done["crashes"] >= crashes:
            break
        failures += [f"{trial}: {text}" for text in trial.run()]
        done.add(trial)
    return done, failures
