"""`explain` names no cause for a group of which every entry is read, settled or retried within its time."""

from __future__ import annotations

import random
from typing import Any

import pytest
import redis

from headwater.groups.membership.member import join
from headwater.groups.protocol.operation import run
from headwater.groups.reading.claiming import Delivered
from headwater.groups.settling.settling import How
from headwater.operations.explaining import explained, look
from tests.samples import sampled
from tests.worker.core import CLAIM_AFTER_MS, Core

pytestmark = pytest.mark.slow


class Worked:
    """A stream with groups that workers keep up with, in a random state."""

    def __init__(self, core: Core, chance: random.Random) -> None:
        self._client: redis.Redis = core.client
        self._chance = chance
        self._workers = [core, core.another("two"), core.another("three")]
        self._own: dict[str, list[Delivered]] = {"one": [], "two": [], "three": []}
        self._settled: list[bytes] = []

    def run(self, steps: int) -> None:
        choices = [self.add, self.add, self.read, self.read, self.read, self.settle, self.settle]
        choices += [self.retry, self.renew, self.hand_back, self.delete, self.trim]
        for _ in range(steps):
            self._chance.choice(choices)()

    def add(self) -> None:
        for n in range(self._chance.randint(1, 5)):
            self._client.xadd("s", {"n": n})

    def read(self) -> None:
        worker = self._chance.choice(self._workers)
        self._own[worker.member.consumer] += worker.read(self._chance.randint(1, 6))

    def settle(self) -> None:
        if found := self._take():
            worker, entry = found
            if worker.settle(entry, self._chance.choice([How.ACK, How.ACKED])).done:
                self._settled.append(entry.id)

    def retry(self) -> None:
        """A failure, whose retry is due before an entry counts as overdue."""
        if found := self._take():
            worker, entry = found
            worker.settle(entry, How.FAIL, delay_ms=self._chance.randint(1, 2 * CLAIM_AFTER_MS - 1))

    def hand_back(self) -> None:
        """A worker that stops hands back; another one claims."""
        if found := self._take():
            worker, entry = found
            worker.settle(entry, How.SILENT)
            self.read()

    def renew(self) -> None:
        for worker in self._workers:
            if own := self._own[worker.member.consumer]:
                worker.renew(*own)

    def delete(self) -> None:
        if self._settled:
            self._client.xdel("s", self._settled.pop(self._chance.randrange(len(self._settled))))

    def trim(self) -> None:
        """Trim up to the first entry that is not settled."""
        (group,) = self._groups()
        pending: Any = self._client.xpending("s", "g")
        first = pending["min"] or group["last-delivered-id"]
        if first != b"0-0":
            self._client.xtrim("s", minid=first, approximate=False)

    def _groups(self) -> Any:
        return self._client.xinfo_groups("s")

    def _take(self) -> tuple[Core, Delivered] | None:
        owners = [one for one in self._workers if self._own[one.member.consumer]]
        if not owners:
            return None
        worker = self._chance.choice(owners)
        own = self._own[worker.member.consumer]
        return worker, own.pop(self._chance.randrange(len(own)))


@pytest.mark.parametrize("states", [60, pytest.param(sampled(350), marks=pytest.mark.slice)])
def test_a_group_that_keeps_up_has_no_cause(core: Core, states: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # shown if the test fails
    chance = random.Random(seed)
    for number in range(states):
        # Given a random state of a group that workers keep up with
        core.client.flushall()
        run(core.client, join(core.member))
        fresh = Core.of(core.client, core.member)
        worked = Worked(fresh, chance)
        worked.run(chance.randint(1, 40))
        before = run(core.client, look("s"))
        worked.run(chance.randint(0, 5))
        # Then nothing is named, at one look or at two
        now = run(core.client, look("s"))
        for answer in (*explained(before), *explained(now, before)):
            assert answer.causes == [], number
