"""Simulated crashes: a worker dies at one await after the other, and the next one finishes its work.

The worker, the engine and the clock are those of `App.test()`, so a trial takes milliseconds and plays
the same way each time. `Trial` runs a short scenario and kills the worker at the n-th step of its
event loop, and the next worker at a step of its own if asked to. Then it judges:

- each message is settled, and nothing is pending or waits
- each result is published once, also if the handler ran twice
- exactly the messages that must be dead letters are, each once
- no message ran more often than its scenario and the crashes explain
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headwater.worker import Again, App, Backoff, Dead, Delivery, Stream
from headwater.worker.quarantine import QuarantineLock
from headwater.worker.testing import AppTest
from tests.worker.chaos.stepping import SteppingLoop, every_command_a_step

MOST_DELIVERIES: Final = 4

MOST_STEPS: Final = 220
"""Where a worker may die; the longest scenario is a little longer."""

PATIENCE_ROUNDS: Final = 60
"""Rounds of five simulated seconds in which all must be settled."""


class Order(msgspec.Struct):
    id: int
    do: str = ""


class Invoice(msgspec.Struct):
    order: int


class Kind(NamedTuple):
    """What a message has its handler do. ``runs`` are its runs without a crash."""

    runs: int = 1
    dead: bool = False


KINDS: Final = {
    "": Kind(),
    "yield": Kind(),
    "slow": Kind(),
    "fail once": Kind(runs=2),
    "again": Kind(runs=2),
    "dead": Kind(dead=True),
    "fail": Kind(runs=MOST_DELIVERIES, dead=True),
    "unreadable": Kind(runs=0, dead=True),
    "kill": Kind(dead=True),
}

SCENARIOS: Final[dict[str, Sequence[str]]] = {
    "results": ("", "yield", "yield", ""),
    "retries": ("fail once", "again", "yield"),
    "dead letters": ("dead", "unreadable", "fail", ""),
    "leases": ("slow", "slow", ""),
    "poison": ("", "kill", "yield", "again"),
    "all": ("", "again", "slow", "unreadable", "fail once", "dead", "yield", "fail"),
}


class Trial:
    """One scenario, in which workers crash at these steps, one after the other.

    ``power`` leaves the connections of a dead worker open, as a machine without power does.
    """

    def __init__(
        self, scenario: str, *crashes: int, into: bool = True, power: bool = False
    ) -> None:
        self.scenario = scenario
        self.messages = SCENARIOS[scenario]
        self.crashes = crashes
        self._planned = [*crashes]
        self.into = into
        self.power = power
        self.crashed = 0
        """Crashes that came about, those by a message included; a step beyond the end of the scenario is
        none."""
        self.runs: Counter[int] = Counter()
        self.steps = 0
        """Steps that the last worker took."""
        self.orders: Stream[Order] = Stream("orders", Order)
        self.invoices: Stream[Invoice] = Stream("invoices", Invoice)

    def __repr__(self) -> str:
        steps = ", ".join(map(str, self.crashes))
        return f"Trial({self.scenario!r}, {steps}, into={self.into}, power={self.power})"

    def run(self) -> list[str]:
        """What does not hold; nothing if all is well."""
        with every_command_a_step(), asyncio.Runner(loop_factory=SteppingLoop) as runner:
            return runner.run(self._run())

    async def _run(self) -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SteppingLoop), "a trial has a loop of its own"
        app = App("headwater://memory", name="trial")
        async with app.test() as t:
            handler = self._declared(app, t)
            self._start(t, loop)
            for number, do in enumerate(self.messages):
                if do == "unreadable":
                    await t.add(self.orders, {"id": f"not {number}"})
                else:
                    await t.send(self.orders, Order(number, do))
            for _ in range(PATIENCE_ROUNDS):
                await t.advance("5s")
                if self._settled(t):
                    break
            loop.disarm()
            self.steps = loop.steps
            wrong = self._judge(t, handler)
            loop.bury()
        return wrong

    def _declared(self, app: App, t: AppTest) -> Callable[..., Any]:
        @app.consumer(
            self.orders,
            group="g",
            claim_after="3s",
            lease="1s",
            concurrency=2,
            max_deliveries=MOST_DELIVERIES,
            retry=Backoff("1s", jitter=0),
            into=self.invoices if self.into else None,
        )
        async def handle(order: Order, delivery: Delivery) -> Invoice:
            self.runs[order.id] += 1
            match order.do:
                case "yield":
                    await asyncio.sleep(0)
                case "slow":
                    await t.clock.sleep(2.5)
                case "again" if delivery.count == 1:
                    raise Again(after="2s")
                case "fail once" if delivery.count == 1:
                    raise ValueError("as it was told")
                case "fail":
                    raise ValueError("as it was told")
                case "dead":
                    raise Dead("as it was told")
                case "kill":
                    loop = asyncio.get_running_loop()
                    assert isinstance(loop, SteppingLoop), "a trial has a loop of its own"
                    loop.kill()
                    await asyncio.sleep(0)
            return Invoice(order.id)

        return handle

    # --- processes --------------------------------------------------------------------------------

    def _start(self, t: AppTest, loop: SteppingLoop) -> None:
        """A worker process in the place of the one before."""
        step = self._planned.pop(0) if self._planned else None
        loop.spawn(lambda: self._begin(t), crash_at=step, crashed=lambda: self._crash(t, loop))

    def _begin(self, t: AppTest) -> None:
        running = t._the_running()
        running._lock = QuarantineLock()  # of a process
        for consumer in t.app.consumers:
            if consumer in running.loops:
                t._abandoned.append(running.replace(consumer))
            else:
                running.loops[consumer] = running._loop(consumer)
                running.loops[consumer].start()

    def _crash(self, t: AppTest, loop: SteppingLoop) -> None:
        self.crashed += 1
        if not self.power:
            self._disconnect(t)
        self._start(t, loop)

    def _disconnect(self, t: AppTest) -> None:
        """Close the connections over which the dead worker reads, as the kernel does."""
        names = {one.consumer_name for one in t._the_running().loops.values()}
        for client in t.look.client_list():
            if client["name"] in names:
                t.look.client_kill_filter(_id=client["id"])

    # --- verdict ----------------------------------------------------------------------------------

    def _settled(self, t: AppTest) -> bool:
        (group,) = t.look.xinfo_groups("orders") or [{}]
        return bool(group) and group["pending"] == 0 and group["lag"] == 0

    def _judge(self, t: AppTest, handler: Callable[..., Any]) -> list[str]:
        wrong = []
        if not self._settled(t):
            wrong.append(f"not settled: {t.pending(handler)}, {t.look.xinfo_groups('orders')}")
        kinds = [KINDS[do] for do in self.messages]
        innocent = [number for number, kind in enumerate(kinds) if not kind.dead]
        results = [one.order for one in t.results(self.invoices)]
        if sorted(results) != (innocent if self.into else []):
            wrong.append(f"results of {sorted(results)}, expected {innocent}")
        letters = [dict(letter.fields)[b"id"].decode() for letter in t.dead(self.orders)]
        expected = [
            f"not {number}" if do == "unreadable" else str(number)
            for number, do in enumerate(self.messages)
            if KINDS[do].dead
        ]
        if sorted(letters) != sorted(expected):
            wrong.append(f"dead letters {sorted(letters)}, expected {sorted(expected)}")
        for number, kind in enumerate(kinds):
            runs = self.runs[number]
            least = 0 if kind.dead else 1
            if not least <= runs <= kind.runs + self.crashed:
                wrong.append(f"message {number} ran {runs} times, {self.crashed} crashes")
        return wrong


def each_step(scenario: str, *, stride: int = 1, first: int = 1) -> Iterator[Trial]:
    """A trial for each step of the scenario, or every ``stride``-th, with each kind of death."""
    whole = Trial(scenario)
    assert not whole.run(), "a scenario without a crash ends well"
    for number, step in enumerate(range(first, whole.steps + 1, stride)):
        yield Trial(scenario, step, power=bool((number + step) % 2))


def several(seed: int) -> Iterator[Trial]:
    """Trials without end in which two or three workers die, one after the other."""
    chance = random.Random(seed)
    while True:
        scenario = chance.choice(list(SCENARIOS))
        crashes = [chance.randint(1, MOST_STEPS) for _ in range(chance.choice((1, 2, 2, 3)))]
        yield Trial(scenario, *crashes, into=chance.random() < 0.8, power=chance.random() < 0.5)


def play(trials: Iterable[Trial], *, crashes: int | None = None) -> tuple[int, list[str]]:
    """Run trials until they end, or so many crashes came about; the crashes, and what did not hold."""
    done, failures = 0, []
    for trial in trials:
        if crashes is not None and done >= crashes:
            break
        failures += [f"{trial}: {text}" for text in trial.run()]
        done += trial.crashed
    return done, failures
