"""The commands that read: with limits, in groups, with claims; and the positions of groups."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from hypothesis.stateful import initialize

from headwater.testing.node import Word
from tests.property.machine import MOST, StoreMachine
from tests.property.model import ID, LEAST, spell
from tests.property.model_reading import Bounds


class ReadingMachine(StoreMachine):
    """Reading commands. There are about thirty entries at the start."""

    STEPS: ClassVar[dict[str, int]] = {
        **StoreMachine.STEPS,
        "xreadgroup": 14,
        "xread": 1,
        "xlag": 2,
        "xdelayed": 2,
    }

    @initialize()
    def begin(self) -> None:
        """Add thirty entries and two groups, one of which has read most of them."""
        random = Random(0)
        for key in (b"s", b"t"):
            for name in (b"g", b"h"):
                self._create(key, name, LEAST)
        for _ in range(30):
            self.xadd(random)
        for who in (b"a", b"b", b"a", b"b"):
            self._xreadgroup(b"g", who, [(b"s", None)], Bounds(6))
        self.pass_time(1000)

    def bounds(self, random: Random) -> Bounds:
        """Limits for a read; often none."""
        maxcount = random.choice((0, 0, 0, 1, 2, 5, MOST))
        count = self.count(random)
        if maxcount:
            count = min(count, maxcount)
        return Bounds(count, maxcount, random.choice((0, 0, 0, 1, 60, 100, 200, MOST)))

    @staticmethod
    def _spelled(bounds: Bounds) -> list[Word]:
        words: list[Word] = ["COUNT", bounds.count]
        words += ["MAXCOUNT", bounds.maxcount] if bounds.maxcount else []
        words += ["MAXSIZE", bounds.maxsize] if bounds.maxsize else []
        return words

    def xread(self, random: Random) -> None:
        key, bounds = self.key(random), self.bounds(random)
        last = None if random.random() < 0.3 else self.id(random, key)
        word = b"+" if last is None else spell(last)
        self.put(
            "XREAD", *self._spelled(bounds), "STREAMS", key, b"t", word, b"0",
            to=lambda: self.model.xread([(key, last), (b"t", LEAST)], bounds),
        )  # fmt: skip

    def xreadgroup(self, random: Random) -> None:
        reads: list[tuple[bytes, ID | None]] = []
        for _ in range(random.choice((1, 1, 1, 1, 2, 3))):
            key = self.key(random)
            reads.append((key, self.id(random, key) if random.random() < 0.2 else None))
        claim = random.choice((None, None, self.age(random), self.age(random), MOST))
        name, who, bounds = self.group(random), self.consumer(random), self.bounds(random)
        self._xreadgroup(name, who, reads, bounds, claim=claim, noack=random.random() < 0.1)

    def _xreadgroup(
        self,
        name: bytes,
        who: bytes,
        reads: list[tuple[bytes, ID | None]],
        bounds: Bounds,
        *,
        claim: int | None = None,
        noack: bool = False,
    ) -> None:
        words: list[Word] = ["XREADGROUP", "GROUP", name, who, *self._spelled(bounds)]
        words += [] if claim is None else ["CLAIM", claim]
        words += ["NOACK"] if noack else []
        words += ["STREAMS", *(key for key, _ in reads)]
        words += [b">" if at is None else spell(at) for _, at in reads]
        self.put(
            *words,
            to=lambda: self.model.xreadgroup(name, who, reads, bounds, claim=claim, noack=noack),
        )

    def xlag(self, random: Random) -> None:
        key = self.key(random)
        names = [self.group(random) for _ in range(random.choice((0, 0, 1, 2)))]
        self.put("XLAG", key, *names, to=lambda: self.model.xlag(key, names))

    def xdelayed(self, random: Random) -> None:
        key, name = self.key(random), self.group(random)
        if random.random() < 0.5:
            self.put("XDELAYED", key, name, to=lambda: self.model.xdelayed(key, name))
            return
        start, end = sorted((self.id(random, key), self.id(random, key)))
        count = random.choice((0, 1, 3, MOST))
        self.put(
            *("XDELAYED", key, name, spell(start), spell(end), count),
            to=lambda: self.model.xdelayed(key, name, start, end, count),
        )
