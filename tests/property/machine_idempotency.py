"""The commands of idempotent producers: repeated XADD, configuration, recording an iid by command."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from headwater.testing.node import Word
from tests.property.machine_reading import ReadingMachine
from tests.property.model import ID, Trim, spell
from tests.property.model_idempotency import IID, content


class IdempotencyMachine(ReadingMachine):
    """Two producers with a few iids each, and streams that store few of them for a short time."""

    STEPS: ClassVar[dict[str, int]] = {
        **ReadingMachine.STEPS,
        "xadd_once": 10,
        "xcfgset": 3,
        "xidmprecord": 2,
    }

    def producer(self, random: Random) -> bytes:
        return random.choice((b"p", b"p", b"q"))

    def iid(self, random: Random) -> bytes:
        return b"%d" % random.randrange(5)

    def xadd_once(self, random: Random) -> None:
        """XADD with an iid; sometimes the same content in another order, a trim, or a missing key."""
        key, pid = self.key(random), self.producer(random)
        fields = [b"f", b"%d" % random.randrange(3)]
        fields += [b"g", b"1"] if random.random() < 0.5 else []
        words: list[Word] = ["IDMPAUTO", pid]
        iid: IID = content(fields)
        fields = fields[2:] + fields[:2]
        if random.random() < 0.6:
            iid = self.iid(random)
            words = ["IDMP", pid, iid]
        longest = random.choice((0, 2, 9)) if random.random() < 0.2 else None
        words += [] if longest is None else ["MAXLEN", longest]
        trim = None if longest is None else Trim(longest)
        missing = random.random() < 0.1
        words += ["NOMKSTREAM"] if missing else []
        self.put(
            "XADD", key, *words, b"*", *fields,
            to=lambda: self.model.xadd_once(key, pid, iid, fields, trim, make=not missing),
        )  # fmt: skip

    def xcfgset(self, random: Random) -> None:
        key = self.key(random)
        duration, maxsize = random.choice(((1, None), (2, 2), (None, 1), (None, 3), (5, 3)))
        words: list[Word] = ["XCFGSET", key]
        words += [] if duration is None else ["IDMP-DURATION", duration]
        words += [] if maxsize is None else ["IDMP-MAXSIZE", maxsize]
        self.put(*words, to=lambda: self.model.xcfgset(key, duration, maxsize))

    def xidmprecord(self, random: Random) -> None:
        key, pid, iid = self.key(random), self.producer(random), self.iid(random)
        entry_id = self._recorded(key, random)
        self.put(
            "XIDMPRECORD", key, pid, iid, spell(entry_id),
            to=lambda: self.model.xidmprecord(key, pid, iid, entry_id),
        )  # fmt: skip

    def _recorded(self, key: bytes, random: Random) -> ID:
        """Usually an existing entry of any age, so that iids are not in id order."""
        stream = self.model.streams.get(key)
        if stream is None or not stream.entries or random.random() < 0.1:
            return self.id(random, key)
        return random.choice(sorted(stream.entries))
