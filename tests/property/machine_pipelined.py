"""The machine of `machine_pending` on batches: many commands in one receive, cut at any byte, and only
then the replies compared with the model's. Driven by a seed, without Hypothesis, for long campaigns.

What acts at once (time, transactions, crashes) sends the batch under way first. Batches of one command
are put as the other machines put them, with what they ask of the journal's room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from headwater.testing.node import Word, request
from headwater.testing.replies import Reply
from tests.conformance.pipelines import cut
from tests.property.machine_pending import PendingMachine
from tests.property.model import LEAST, spell
from tests.property.model_reading import Bounds

BATCHES = (1, 5, 30, 100)
LARGE_ENTRIES = 700
"""With so many, some hundred of them pending, a pending list has more than one block."""


class Step(NamedTuple):
    """One step of a history: a method of the machine and the seed of its choices."""

    what: str
    seed: int


class PipelinedMachine(PendingMachine):
    """``sent`` are all commands so far, ``counted`` how many there were of each name."""

    def __init__(self) -> None:
        self.batch: list[tuple[tuple[Word, ...], Reply]] = []
        self.most = 1
        self.random = Random(0)
        self.counted: Counter[str] = Counter()
        self.sent: list[tuple[Word, ...]] = []
        super().__init__()
        self.begin()

    def do(self, step: Step) -> None:
        """One step; the same step does the same in the same state, whatever came before."""
        getattr(self, step.what)(Random(step.seed))

    # --- batches --------------------------------------------------------------------------------

    def resize(self, random: Random) -> None:
        """Let batches be of another size from now on, and cut otherwise."""
        self.flush()
        self.most = random.choice(BATCHES)
        self.random = random

    def put(self, *words: Word, to: Callable[[], Reply]) -> None:
        self.counted[str(words[0])] += 1
        self.sent.append(words)
        if self.queue is not None or self.most == 1:
            super().put(*words, to=to)
            return
        self.model.come_due()
        self.batch.append((words, self._expected(to)))
        if len(self.batch) >= self.most:
            self.flush()

    def flush(self) -> None:
        """Send the batch, if there is one, and compare what comes back."""
        batch, self.batch = self.batch, []
        if not batch:
            return
        session = self.client.session
        for piece in cut(b"".join(request(words) for words, _ in batch), self.random):
            session.feed(piece)
            self.store.node.turn([session])
        for words, expected in batch:
            reply = self.client.reply()
            if reply is None:  # requests wait until enough of the replies was taken
                self.store.node.turn([session])
                reply = self.client.reply()
            assert reply == expected, f"{words!r}: the store says {reply!r}, the model {expected!r}"
        assert self.client.reply() is None

    # --- what acts at once ----------------------------------------------------------------------

    def advance(self, random: Random) -> None:
        self.flush()
        super().advance(random)

    def set_clock_back(self, random: Random) -> None:
        self.flush()
        super().set_clock_back(random)

    def multi(self, random: Random) -> None:
        self.flush()
        super().multi(random)

    def settle(self) -> None:
        self.flush()
        super().settle()

    def xidmprecord(self, random: Random) -> None:
        """By itself: what it records may have run out, which is looked for once in a turn."""
        self.flush()
        super().xidmprecord(random)
        self.flush()

    def check(self) -> None:
        """The store is sound, and as the model has it."""
        self.flush()
        self.is_sound_and_as_modelled()

    # --- large stores ---------------------------------------------------------------------------

    def fill(self, random: Random) -> None:
        """Some hundred entries, most of them pending in one group, some in the other."""
        self.most = 100
        for at in range(LARGE_ENTRIES):
            key, fields = b"s", [b"f", b"%d" % at]
            entry_id = (self.model.streams[key].last[0] + 1, random.randrange(3))
            self.put("XADD", key, spell(entry_id), *fields, to=self._adding(key, entry_id, fields))
        for name, who, count in (
            (b"g", b"a", 300),
            (b"h", b"b", 280),
            (b"g", b"b", 250),
            (b"g", b"", 40),
        ):
            self._xreadgroup(name, who, [(b"s", None)], Bounds(count))
            self.advance(random)
        self.flush()

    def _adding(
        self, key: bytes, entry_id: tuple[int, int], fields: list[bytes]
    ) -> Callable[[], Reply]:
        assert entry_id > LEAST
        return lambda: self.model.xadd(key, entry_id, fields)
