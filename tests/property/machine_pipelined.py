"""The machine of `machine_pending` with batches: many commands in one receive, split at any byte. Replies are
compared with the model's after the batch. Driven by a seed, without Hypothesis, for long campaigns.

What takes effect at once (time, transactions, crashes) sends the current batch first. Batches of one
command are sent as by the other machines, with the check of admission.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from headwater.engine.check import broken_invariants
from headwater.testing.node import Word, request
from headwater.testing.replies import Reply
from tests.conformance.pipelines import cut
from tests.property.machine_pending import PendingMachine
from tests.property.model import LEAST, spell
from tests.property.model_reading import Bounds
from tests.property.pictures import of_model, of_store

BATCHES = (1, 5, 30, 100)
LARGE_ENTRIES = 700
"""With this many entries, and some hundreds pending, a pending list has more than one block."""


def unlike(ours: Any, modelled: Any, where: str = "") -> tuple[str, Any, Any]:
    """Return the first place where two pictures differ and both values there; an empty place if none."""
    if ours == modelled:
        return "", None, None
    if isinstance(ours, dict) and isinstance(modelled, dict) and ours.keys() == modelled.keys():
        key = next(key for key in ours if ours[key] != modelled[key])
        return unlike(ours[key], modelled[key], f"{where}[{key!r}]")
    return where or "everything", ours, modelled


class Step(NamedTuple):
    """One step of a history: a method of the machine and the seed of its choices."""

    what: str
    seed: int


class PipelinedMachine(PendingMachine):
    """``sent`` are all commands so far, ``counted`` their number by name."""

    def __init__(self) -> None:
        self.batch: list[tuple[tuple[Word, ...], Reply]] = []
        self.most = 1
        self.whole = False
        """Whether the current batch must be one receive."""
        self.random = Random(0)
        self.counted: Counter[str] = Counter()
        self.sent: list[tuple[Word, ...]] = []
        super().__init__()
        self.begin()

    def do(self, step: Step) -> None:
        """Run one step. In the same state the same step always does the same."""
        getattr(self, step.what)(Random(step.seed))

    # --- batches --------------------------------------------------------------------------------

    def resize(self, random: Random) -> None:
        """Choose another size of batches, and other places at which they are split."""
        self.flush()
        self.most = random.choice(BATCHES)
        self.random = random

    def put(self, *words: Word, to: Callable[[], Reply]) -> None:
        self.counted[str(words[0])] += 1
        self.sent.append(words)
        if self.queue is not None or self.most == 1:
            super().put(*words, to=to)
            return
        if not self.batch:
            self.model.come_due()
        self.batch.append((words, self._expected(to)))
        self.whole |= self._sweeps()
        if len(self.batch) >= self.most:
            self.flush()

    def flush(self) -> None:
        """Send the current batch, if any, and compare the replies."""
        batch, self.batch = self.batch, []
        if not batch:
            return
        session = self.client.session
        data = b"".join(request(words) for words, _ in batch)
        pieces = [data] if self.whole else cut(data, self.random)
        self.whole = False
        for piece in pieces:
            session.feed(piece)
            self.store.node.turn([session])
        for words, expected in batch:
            reply = self.client.reply()
            if reply is None:  # further requests wait until enough replies have been read
                self.store.node.turn([session])
                reply = self.client.reply()
            assert reply == expected, f"{words!r}: the store says {reply!r}, the model {expected!r}"
        assert self.client.reply() is None

    def _sweeps(self) -> bool:
        """Whether the iid of an old entry, recorded by XIDMPRECORD, has expired since the batch began. The
        store sweeps at the beginning of every receive, the model at the beginning of the batch."""
        return any(
            stream.producers.over(next(iter(iids.values()))[1], self.model.now)
            for stream in self.model.streams.values()
            for iids in stream.producers.known.values()
            if iids
        )

    # --- what takes effect at once --------------------------------------------------------------

    def advance(self, random: Random) -> None:
        self.flush()
        super().advance(random)

    def jump_clock(self, random: Random) -> None:
        self.flush()
        super().jump_clock(random)

    def multi(self, random: Random) -> None:
        self.flush()
        super().multi(random)

    def settle(self) -> None:
        self.flush()
        super().settle()

    def check(self) -> None:
        """Check the store's invariants and compare its state with the model's."""
        self.flush()
        keyspace = self.store.node.keyspace
        assert broken_invariants(keyspace) == []
        where, ours, modelled = unlike(of_store(keyspace), of_model(self.model))
        assert not where, f"{where}: the store has {ours!r}, the model {modelled!r}"

    # --- large stores ---------------------------------------------------------------------------

    def fill(self, random: Random) -> None:
        """Add some hundreds of entries, most of them pending in one group, some in the other."""
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
