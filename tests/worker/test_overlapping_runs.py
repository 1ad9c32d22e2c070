"""Runs of one message that overlap in several processes: exactly one of them settles it, with its result."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import redis

import headwater
from headwater.groups.membership.member import Member, join
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.operation import run
from headwater.groups.reading.claiming import Delivered
from headwater.groups.settling.settling import Addition, How, Settlement, renew, settle
from headwater.testing.clock import ManualClock
from tests.worker.core import Core

SEED = 20261129

CONSUMERS = ("one", "two", "three")

CLAIM_AFTER_MS = 1_000


class History:
    """A random history of one group: processes that read, fall silent, overtake one another and finish late."""

    def __init__(self, client: redis.Redis, seed: int) -> None:
        self.random = Random(seed)
        self.client: Any = client
        first = Member("s", "g", "one", CLAIM_AFTER_MS, run(client, probe()))
        run(client, join(first))
        self.cores = [Core.of(client, replace(first, consumer=name)) for name in CONSUMERS]
        self.retries = True
        """Handlers may fail, so that the message is delivered again."""
        self.runs: list[tuple[Core, Delivered]] = []
        """Handlers that run: each may finish, regardless of the owner of its entry by then."""

    def play(self, messages: int = 3, steps: int = 16) -> list[str]:
        """Return what is wrong after the history, an empty list if nothing is."""
        ids: Any = [self.client.xadd("s", {"n": n}) for n in range(messages)]
        for _ in range(steps):
            self.random.choice([self.read, self.steal, self.finish, self.finish, self.renewal])()
        for _ in range(3):
            while self.runs:
                self.finish()
            self.steal()
            self.runs += [(core, found) for core in self.cores for found in core.read()]
            self.retries = False
        results = Counter(fields[b"of"] for _id, fields in self.client.xrange("out"))
        dead = Counter(fields[b"hw.id"] for _id, fields in self.client.xrange("dead"))
        wrong = [
            f"{one!r}: {results[one]} results, {dead[one]} dead letters"
            for one in ids
            if results[one] + dead[one] != 1
        ]
        return wrong + [
            f"pending: {row}" for row in self.client.xpending_range("s", "g", "-", "+", 9)
        ]

    def read(self) -> None:
        core = self.random.choice(self.cores)
        self.runs += [(core, found) for found in core.read(limit=self.random.randint(1, 3))]

    def steal(self) -> None:
        """Every owner is silent for longer than ``claim_after``, and another process claims what it had."""
        core = self.random.choice(self.cores)
        for row in self.client.xpending_range("s", "g", "-", "+", 9):
            if row["consumer"] in (b"hw.parked", b""):
                continue
            for entry_id, fields in self.client.xclaim(
                "s", "g", core.member.consumer, 0, [row["message_id"]]
            ):
                flat = [part for pair in fields.items() for part in pair]
                count = row["times_delivered"] + 1
                self.runs.append((core, Delivered(entry_id, flat, count, True, True)))

    def renewal(self) -> None:
        core = self.random.choice(self.cores)
        run(self.client, renew(core.member, [found.id for one, found in self.runs if one is core]))

    def finish(self) -> None:
        """One of the runs ends: its handler returns, fails or dies with a dead letter; some replies are lost."""
        if not self.runs:
            return
        core, found = self.runs.pop(self.random.randrange(len(self.runs)))
        result = Addition("out", [(b"of", found.id)])
        letter = Settlement(found.id, How.ACK, 0, [Addition("dead", [(b"hw.id", found.id)])])
        returned = Settlement(found.id, How.ACK, 0, [result], any_owner=True)
        ends = [returned, returned, letter]
        if self.retries:
            ends += [Settlement(found.id, How.FAIL), Settlement(found.id, How.SILENT)]
        end = self.random.choice(ends)
        for _ in range(self.random.choice([1, 1, 2])):
            run(self.client, settle(core.member, [end]))


def played(client: redis.Redis, seed: int) -> list[str]:
    client.flushall()
    return [f"seed {seed}: {one}" for one in History(client, seed).play()]


@pytest.mark.slow
def test_a_thousand_histories_of_overlapping_runs_settle_each_message_exactly_once() -> None:
    with headwater.connect("headwater://memory/overlapping", clock=ManualClock()) as client:
        assert [wrong for n in range(1_000) for wrong in played(client, SEED + n)] == []


def test_overlapping_runs_settle_each_message_exactly_once(core: Core) -> None:
    assert [wrong for n in range(30) for wrong in played(core.client, SEED + n)] == []
