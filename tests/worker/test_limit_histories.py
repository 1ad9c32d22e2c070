"""Random histories of processes that share limits: never too many tokens within a time, never too many at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
import redis

import headwater
from headwater.groups.membership.member import Member, join
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.operation import run
from headwater.groups.reading.claiming import Delivered
from headwater.groups.reading.limits import (
    LAST_RESORT_MS,
    Asked,
    LimitPlace,
    Token,
    free_places,
    look_after,
    take_places,
    take_tokens,
)
from headwater.groups.settling.settling import How, Settlement, renew, settle
from headwater.testing.clock import ManualClock
from tests.samples import sampled
from tests.worker.core import Core

SEED = 20261130

CLAIM_AFTER_MS = 1_000

MOST = 2

KEYS = ("a", "b")


@dataclass
class Process:
    """A process: what it has read, and what it runs."""

    core: Core
    waits: list[Delivered] = field(default_factory=list)
    runs: dict[bytes, str] = field(default_factory=dict)


class PlaceHistory:
    """Processes that read, ask for places, finish, fail, die and are replaced."""

    def __init__(self, client: redis.Redis, clock: ManualClock, seed: int) -> None:
        self.random = Random(seed)
        self.client: Any = client
        self.clock = clock
        self.made = 0
        self.member = Member("s", "g", "first", CLAIM_AFTER_MS, run(client, probe()))
        run(client, join(self.member))
        self.processes = [self.another() for _ in range(3)]
        self.wrong: list[str] = []
        self.failures = 10

    def another(self) -> Process:
        self.made += 1
        member = replace(self.member, consumer=f"process-{self.made}")
        return Process(Core.of(self.client, member))

    def play(self, messages: int = 12, steps: int = 60) -> list[str]:
        """Return what is wrong after the history, an empty list if nothing is."""
        for number in range(messages):
            self.client.xadd("s", {"key": KEYS[number % len(KEYS)]})
        for _ in range(steps):
            one = self.random.choice(self.processes)
            self.random.choice([self.read, self.ask, self.ask, self.finish, self.pass_time])(one)
            if self.random.random() < 0.04:
                self.processes.remove(one)
                self.processes.append(self.another())
        for _ in range(100):
            if not self.client.xpending("s", "g")["pending"] and not self.unread():
                return self.wrong
            self.failures = 0
            for one in self.processes:
                self.read(one)
                self.ask(one)
                self.finish(one)
                self.look(one)
            self.pass_time(self.processes[0])
        return [*self.wrong, f"not settled: {self.client.xpending_range('s', 'g', '-', '+', 9)}"]

    def unread(self) -> bool:
        return bool(self.client.xinfo_groups("s")[0]["lag"])

    def read(self, one: Process) -> None:
        one.waits += one.core.read(limit=self.random.randint(1, 4))

    def pass_time(self, _one: Process) -> None:
        """Time passes, and everyone who lives renews."""
        self.clock.advance(self.random.choice([0.05, 0.3, 0.6]))
        for one in self.processes:
            ids = [*one.runs, *(found.id for found in one.waits)]
            run(self.client, renew(one.core.member, ids))

    def ask(self, one: Process) -> None:
        asked = [Asked(found.id, 0, False, (), [place_of(found)]) for found in one.waits]
        if not asked:
            return
        verdicts = run(self.client, take_places(one.core.member, asked))
        for found, verdict in zip(one.waits, verdicts, strict=True):
            if verdict == 0:
                one.runs[found.id] = found.fields[1].decode()
            else:
                back = Settlement(found.id, How.SILENT, LAST_RESORT_MS)
                run(self.client, settle(one.core.member, [back]))
        one.waits = []
        running = Counter(key for each in self.processes for key in each.runs.values())
        self.wrong += [f"{n} of {key} at once" for key, n in running.items() if n > MOST]

    def finish(self, one: Process) -> None:
        for entry_id, key in [*one.runs.items()][: self.random.randint(1, 3)]:
            how = How.ACK
            if self.failures and self.random.random() < 0.3:
                self.failures -= 1
                how = self.random.choice([How.FAIL, How.SILENT])
            del one.runs[entry_id]
            run(self.client, settle(one.core.member, [Settlement(entry_id, how)]))
            if self.random.random() < 0.9:  # else the process dies before it gives the place back
                run(self.client, free_places(one.core.member, [(entry_id, place(key))]))

    def look(self, one: Process) -> None:
        run(self.client, look_after(one.core.member, 0))


def place(key: str) -> LimitPlace:
    return LimitPlace(f"{{s}}:hw:limit:g:places0:{key}", MOST, in_line=True)


def place_of(found: Delivered) -> LimitPlace:
    return place(found.fields[1].decode())


def places_played(client: redis.Redis, clock: ManualClock, seed: int) -> list[str]:
    client.flushall()
    return [f"seed {seed}: {one}" for one in PlaceHistory(client, clock, seed).play()]


@pytest.mark.slice
@pytest.mark.parametrize("hundred", range(sampled(3)))
def test_in_hundreds_of_histories_never_too_many_run_at_once_and_none_waits_for_ever(
    hundred: int,
) -> None:
    clock = ManualClock()
    seeds = range(SEED + 100 * hundred, SEED + 100 * hundred + 100)
    with headwater.connect("headwater://memory/places", clock=clock) as client:
        assert [one for seed in seeds for one in places_played(client, clock, seed)] == []


def test_in_some_histories_never_too_many_run_at_once() -> None:
    clock = ManualClock()
    with headwater.connect("headwater://memory/some-places", clock=clock) as client:
        wrong = [one for n in range(10) for one in places_played(client, clock, SEED + n)]
    assert wrong == []


def tokens_played(client: redis.Redis, clock: ManualClock, seed: int) -> list[str]:
    """Ask for tokens at random times. Return what is wrong: more than the limit within any time, or less than the rate
    although entries waited all the time."""
    client.flushall()
    chance = Random(seed)
    every, burst = chance.choice([1e3, 1e4, 333.3]), chance.choice([1, 2, 10])
    token = Token("t", every, every * (burst - 1), in_line=chance.random() < 0.5)
    granted: list[float] = []
    due: dict[int, list[bool]] = defaultdict(list)
    left = 60
    began = clock.monotonic()
    while left or due:
        now = clock.monotonic()
        lines = [True for at in [*due] if at <= now * 1e6 for _ in due.pop(at)]
        fresh = min(left, chance.randint(0, 8))
        asks = [True] * len(lines) + [False] * fresh
        verdicts = run(client, take_tokens([Asked(b"", 20_000, one, [token]) for one in asks]))
        for number, verdict in enumerate(verdicts):
            if verdict.starts:
                granted.append(now + verdict.wait_us / 1e6)
                left -= number >= len(lines)
            elif verdict.parked:
                due[int(now * 1e6 + verdict.wait_us)].append(True)
                left -= number >= len(lines)
        clock.advance(chance.choice([0.0, 0.001, 0.01]))
    granted.sort()
    wrong = [
        f"seed {seed}: {m - n + 1} within {granted[m] - granted[n]:.6f} s of {every:g} us, burst {burst}"
        for n in range(len(granted))
        for m in range(n, len(granted))
        if m - n + 1 > burst + (granted[m] - granted[n]) * 1e6 / every + 0.01
    ]
    if len(granted) != 60 or clock.monotonic() - began > 60 * every / 1e6 + 5:
        wrong.append(f"seed {seed}: {len(granted)} in {clock.monotonic() - began} s")
    return wrong


def test_no_time_has_more_tokens_than_its_rate_and_burst() -> None:
    clock = ManualClock()
    with headwater.connect("headwater://memory/tokens", clock=clock) as client:
        assert [one for n in range(40) for one in tokens_played(client, clock, SEED + n)] == []
