"""The commands on pending entries: settling, claiming, Headwater's own commands, inspection."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import rule

from headwater.common.limits import MAX_DURATION_MS
from headwater.testing.node import Word
from tests.property.machine import MOST, TIMES
from tests.property.machine_idempotency import IdempotencyMachine
from tests.property.model import GREATEST, ID, LEAST, Group, spell
from tests.property.model_groups import To

RELEASES = (b"SILENT", b"FAIL", b"FATAL")

_STEPS = {
    **IdempotencyMachine.STEPS,
    "xack": 4,
    "xackdel": 3,
    "xdelex": 3,
    "xnack": 5,
    "xrenew": 3,
    "xsettle": 10,
    "xclaim": 7,
    "xautoclaim": 7,
    "xpending": 1,
    "xpending_rows": 2,
}


class PendingMachine(IdempotencyMachine):
    """A machine with all commands."""

    STEPS: ClassVar[dict[str, int]] = _STEPS

    @rule(
        what=st.sampled_from([name for name, often in _STEPS.items() for _ in range(often)]),
        seed=st.integers(0, 2**32),
    )
    def step(self, what: str, seed: int) -> None:
        # Hypothesis tends to draw the same numbers again: the count makes a third xadd differ from the first.
        self.drawn[what] += 1
        getattr(self, what)(Random(f"{what} {self.drawn[what]} {seed}"))

    # --- arguments ------------------------------------------------------------------------------

    def _found(self, key: bytes, name: bytes) -> Group | None:
        stream = self.model.streams.get(key)
        return None if stream is None else stream.groups.get(name)

    def some(self, random: Random, key: bytes, there: list[ID]) -> list[ID]:
        """Some of these ids; sometimes others, or if there are none."""
        count = random.choice((1, 1, 2, 2, 3, 6))
        return [
            random.choice(there) if there and random.random() < 0.9 else self.id(random, key)
            for _ in range(count)
        ]

    def pending_ids(self, random: Random, key: bytes, name: bytes) -> list[ID]:
        group = self._found(key, name)
        return self.some(random, key, sorted(group.pending) if group is not None else [])

    def owned_ids(self, random: Random, key: bytes, name: bytes, who: bytes) -> list[ID]:
        """Ids that the consumer owns; in half of the cases possibly those of other consumers."""
        group = self._found(key, name)
        owned = group.owned_by(who) if group is not None else []
        if not owned or random.random() < 0.5:
            return self.pending_ids(random, key, name)
        return [random.choice(owned) for _ in range(random.choice((1, 2, 4)))]

    def _subject(self, random: Random) -> tuple[bytes, bytes, bytes]:
        return self.key(random), self.group(random), self.consumer(random)

    # --- settling -------------------------------------------------------------------------------

    def xack(self, random: Random) -> None:
        key, name, _ = self._subject(random)
        ids = self.pending_ids(random, key, name)
        self.put("XACK", key, name, *map(spell, ids), to=lambda: self.model.xack(key, name, ids))

    def xackdel(self, random: Random) -> None:
        key, name, _ = self._subject(random)
        mode, ids = self.mode(random), self.pending_ids(random, key, name)
        self.put(
            "XACKDEL", key, name, mode, "IDS", len(ids), *map(spell, ids),
            to=lambda: self.model.xackdel(key, name, mode, ids),
        )  # fmt: skip

    def xdelex(self, random: Random) -> None:
        key, name, _ = self._subject(random)
        mode, ids = self.mode(random), self.pending_ids(random, key, name)
        if random.random() < 0.5:
            ids = self.ids(random, key)
        self.put(
            "XDELEX", key, mode, "IDS", len(ids), *map(spell, ids),
            to=lambda: self.model.xdelex(key, mode, ids),
        )  # fmt: skip

    def xnack(self, random: Random) -> None:
        key, name, _ = self._subject(random)
        mode, force = random.choice(RELEASES), random.random() < 0.3
        retrycount = random.choice((None, None, None, 0, 2**40))
        ids = self.ids(random, key) if force else self.pending_ids(random, key, name)
        words: list[Word] = ["XNACK", key, name, mode]
        words += [] if retrycount is None else ["RETRYCOUNT", retrycount]
        words += ["IDS", len(ids), *map(spell, ids)]
        words += ["FORCE"] if force else []
        self.put(
            *words,
            to=lambda: self.model.xnack(key, name, mode, ids, retrycount=retrycount, force=force),
        )

    def xrenew(self, random: Random) -> None:
        key, name, who = self._subject(random)
        ids, idle = self.owned_ids(random, key, name, who), random.choice((0, 0, *TIMES))
        self.put(
            "XRENEW", key, name, who, "IDLE", idle, "IDS", len(ids), *map(spell, ids),
            to=lambda: self.model.xrenew(key, name, who, idle, ids),
        )  # fmt: skip

    def xsettle(self, random: Random) -> None:
        key, name, who = self._subject(random)
        ids = self.owned_ids(random, key, name, who)
        mode = random.choice((b"ACK", b"ACKDEL", *RELEASES))
        delay = None
        if mode in {b"SILENT", b"FAIL"} and random.random() < 0.7:
            delay = random.choice((0, *TIMES, MAX_DURATION_MS))
        references = None
        if mode == b"ACKDEL" and random.random() < 0.7:
            references = self.mode(random)
        words: list[Word] = ["XSETTLE", key, name, who, mode]
        words += [] if references is None else [references]
        words += [] if delay is None else ["DELAY", delay]
        words += ["IDS", len(ids), *map(spell, ids)]
        additions: list[To] = []
        for _ in range(random.choice((0, 0, 1, 2))):
            dest = random.choice((key, b"t", b"u"))
            last = self.model.streams[dest].last if dest in self.model.streams else LEAST
            wanted = random.choice((None, None, (last[0] + 1, random.randrange(2))))
            word = b"*" if wanted is None else spell(wanted)
            words += ["TO", dest, word, "FIELDS", 1, b"f", b"v"]
            additions.append((dest, wanted, [b"f", b"v"]))
        self.put(
            *words,
            to=lambda: self.model.xsettle(
                key, name, who, mode, ids, references=references, delay=delay, to=additions
            ),
        )

    # --- claiming -------------------------------------------------------------------------------

    def xclaim(self, random: Random) -> None:
        key, name, who = self._subject(random)
        force, justid = random.random() < 0.3, random.random() < 0.4
        ids = self.ids(random, key) if force else self.pending_ids(random, key, name)
        min_idle = self.age(random)
        idle = random.choice((None, None, 0, 1000, 7000))
        retrycount = random.choice((None, None, None, 5, MOST))
        words: list[Word] = ["XCLAIM", key, name, who, min_idle, *map(spell, ids)]
        time = None
        if idle is not None and random.random() < 0.5:
            idle, time = None, self.model.wall - random.choice((-3000, 0, 1000, 7000))
        words += [] if idle is None else ["IDLE", idle]
        words += [] if time is None else ["TIME", time]
        words += [] if retrycount is None else ["RETRYCOUNT", retrycount]
        words += ["FORCE"] if force else []
        words += ["JUSTID"] if justid else []
        self.put(
            *words,
            to=lambda: self.model.xclaim(
                key, name, who, min_idle, ids,
                idle=idle or 0, time=time, retrycount=retrycount, force=force, justid=justid,
            ),
        )  # fmt: skip

    def xautoclaim(self, random: Random) -> None:
        key, name, who = self._subject(random)
        min_idle = self.age(random)
        if random.random() < 0.3:
            min_idle = random.choice((10**9, MOST))
        start = LEAST if random.random() < 0.6 else self.id(random, key)
        count, justid = random.choice((1, 1, 2, MOST // 16)), random.random() < 0.4
        words: list[Word] = ["XAUTOCLAIM", key, name, who, min_idle, spell(start), "COUNT", count]
        words += ["JUSTID"] if justid else []
        self.put(
            *words,
            to=lambda: self.model.xautoclaim(
                key, name, who, min_idle, start, count=count, justid=justid
            ),
        )

    # --- inspection -----------------------------------------------------------------------------

    def xpending(self, random: Random) -> None:
        key, name, _ = self._subject(random)
        self.put("XPENDING", key, name, to=lambda: self.model.xpending(key, name))

    def xpending_rows(self, random: Random) -> None:
        key, name, consumer = self._subject(random)
        start, end = self.id(random, key), self.id(random, key)
        if random.random() < 0.6:
            start, end = LEAST, GREATEST
        idle = random.choice((None, 0, -1, self.age(random)))
        who = consumer if random.random() < 0.3 else None
        count = random.choice((1, 3, MOST))
        words: list[Word] = ["XPENDING", key, name]
        words += [] if idle is None else ["IDLE", idle]
        words += [spell(start), spell(end), count]
        words += [] if who is None else [who]
        self.put(
            *words,
            to=lambda: self.model.xpending_rows(key, name, idle or 0, start, end, count, who),
        )
