"""A state machine that draws commands and sends each to the store and to the naive model.

Hypothesis draws the command and a seed. The command then chooses its arguments from what exists in the
model, so that most commands have an effect. Shrinking leaves out commands.

This module has the commands on entries and groups, time and crashes; `machine_reading` has the reading
commands, `machine_pending` those on pending entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import ClassVar

import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant

from headwater.engine.check import broken_invariants
from headwater.engine.groups import pending
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.testing.node import LocalStore, Word
from headwater.testing.replies import Reply, Simple
from tests.blocks import tiny_blocks
from tests.crash.journal_tools import WatchedJournal, command_bytes
from tests.property.model import GREATEST, ID, LEAST, Refused, Trim, refusal, spell
from tests.property.model_groups import Model
from tests.property.pictures import of_model, of_store
from tests.property.state import from_an_image, picture

NODE_MAX_ENTRIES = 3
TIMES = (1, 1, 10, 1000, 5000)
MOST = 2**63 - 1
"""What clients send as a count for all there are."""
JUMPS_S = (-7200, -3600, -3, 3, 3600, 7200)


class StoreMachine(RuleBasedStateMachine):
    """One store, one client, one model. ``STEPS`` is the relative frequency of each command."""

    STEPS: ClassVar[dict[str, int]] = {
        "advance": 8,
        "jump_clock": 2,
        "multi": 3,
        "lose_power": 1,
        "xadd": 14,
        "xdel": 3,
        "trim": 4,
        "xsetid": 1,
        "delete": 1,
        "xrange": 2,
        "xsplit": 1,
        "xcounters": 1,
        "create": 1,
        "setid": 2,
        "administer": 2,
    }

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        tiny_blocks(self.patches)
        self.patches.setattr(pending, "PENDING_BLOCK_RECORDS", 4)
        self.admitted = self.committed = 0
        """Bytes of facts that the latest command had admitted, and that it wrote."""
        self.store = self._new_store()
        self._connect()
        self.model = Model(now=self.store.clock.now_ms(), node_max_entries=NODE_MAX_ENTRIES)
        self.queue: list[tuple[tuple[Word, ...], Callable[[], Reply]]] | None = None
        self.drawn: Counter[str] = Counter()

    def _new_store(self) -> LocalStore:
        return LocalStore(cold=True)

    def _connect(self) -> None:
        self.store.settings.node_max_entries = NODE_MAX_ENTRIES
        self.store.settings.node_max_bytes = 0
        self.client = self.store.client()
        records = self.store.node.records
        assert records.journal is not None
        admit, seed = records.admission, records.journal.seed

        def note_commit(buffer: bytearray, _sync: bool) -> None:
            self.committed = command_bytes(buffer, seed)

        def note_admission(size: int) -> str | None:
            self.admitted = max(self.admitted, size)
            return admit(size)

        self.patches.setattr(records, "journal", WatchedJournal(records.journal, note_commit))
        self.client.session.call.admission = note_admission

    # --- sending a command to both --------------------------------------------------------------

    def put(self, *words: Word, to: Callable[[], Reply]) -> None:
        """Send a command to the store and apply its meaning ``to`` the model, or queue both."""
        if self.queue is not None:
            self.queue.append((words, to))
            return
        self.model.come_due()
        expected = self._expected(to)
        with self.admission(words):
            reply = self.client(*words)
        assert reply == expected, f"{words!r}: the store says {reply!r}, the model {expected!r}"

    @contextmanager
    def admission(self, words: object) -> Iterator[None]:
        """Check that commands sent in the block have their writes admitted before they write, and with at
        least the size that they write (design rule 4)."""
        keyspace = self.store.node.keyspace
        sweep_ms = keyspace.iid_deadlines.next_sweep_ms()  # sweeps and ends of delays also write
        sweeps = sweep_ms is not None and sweep_ms <= self.model.now
        by_itself = (
            bool(keyspace.delaying) or sweeps
        )  # as it is now: the command may end the last delay
        self.admitted = self.committed = 0
        yield
        if not by_itself:
            said = f"{words!r} asked for {self.admitted} bytes and wrote {self.committed}"
            assert self.committed <= self.admitted, said

    def _expected(self, meaning: Callable[[], Reply]) -> Reply:
        try:
            return meaning()
        except Refused as error:
            return refusal(error)

    # --- arguments ------------------------------------------------------------------------------

    def key(self, random: Random) -> bytes:
        return b"s" if random.random() < 0.9 else b"t"

    def group(self, random: Random) -> bytes:
        return b"g" if random.random() < 0.8 else b"h"

    def consumer(self, random: Random) -> bytes:
        return random.choice((b"a", b"b", b"b", b""))

    def mode(self, random: Random) -> bytes:
        return random.choice((b"KEEPREF", b"KEEPREF", b"DELREF", b"ACKED"))

    def count(self, random: Random) -> int:
        return random.choice((0, 0, 1, 1, 2, 3, MOST))

    def id(self, random: Random, key: bytes) -> ID:
        """An id that is relevant to the stream; sometimes another one."""
        stream = self.model.streams.get(key)
        known = {LEAST, (7, 7)}
        if stream is not None and random.random() < 0.95:
            known |= {stream.last, stream.deleted, *stream.entries}
            for group in stream.groups.values():
                known |= group.pending.keys()
        return random.choice(sorted(known))

    def ids(self, random: Random, key: bytes) -> list[ID]:
        return [self.id(random, key) for _ in range(random.choice((1, 1, 2, 5)))]

    # --- time, transactions, power --------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        self.store.advance(ms / 1000)
        self.model.now += ms
        self.model.wall += ms
        self.model.come_due()

    def advance(self, random: Random) -> None:
        self.pass_time(random.choice(TIMES))

    def jump_clock(self, random: Random) -> None:
        """Set the wall clock; no time passes."""
        seconds = random.choice(JUMPS_S)
        self.store.clock.jump(seconds)
        self.model.wall += seconds * 1000

    def multi(self, _random: Random) -> None:
        """Begin a transaction, or send the queued one."""
        if self.queue is None:
            self.queue = []
            return
        queue, self.queue = self.queue, None
        assert self.client("MULTI") == Simple(b"OK")
        for words, _ in queue:
            assert self.client(*words) == Simple(b"QUEUED")
        self.model.come_due()
        expected = [self._expected(meaning) for _, meaning in queue]
        with self.admission(queue):
            replies = self.client("EXEC")
        assert replies == expected, f"{queue!r}: the store {replies!r}, the model {expected!r}"

    def settle(self) -> None:
        """Wait until the times of consumers that were only seen are written, which takes a second, and run a
        command that makes them durable."""
        self.pass_time(1500)
        self.client("SET", "mark", self.model.now)

    def lose_power(self, _random: Random) -> None:
        """Crash and restart. Time continues at the wall clock's time, or at the last record's if it is
        later."""
        self.settle()
        self.store.crash()
        self._connect()
        self.model.now = max(self.model.now, self.model.wall)

    # --- entries --------------------------------------------------------------------------------

    def xadd(self, random: Random) -> None:
        key = self.key(random)
        fields = [b"f", b"x" * random.randrange(40)]
        wanted = None
        if random.random() < 0.3:
            last = self.model.streams[key].last if key in self.model.streams else LEAST
            wanted = (last[0] + random.randrange(3), last[1] + random.randrange(2))
            fields += [b"g", b""]
        name = b"*" if wanted is None else spell(wanted)
        self.put("XADD", key, name, *fields, to=lambda: self.model.xadd(key, wanted, fields))

    def xdel(self, random: Random) -> None:
        key = self.key(random)
        ids = self.ids(random, key)
        self.put("XDEL", key, *map(spell, ids), to=lambda: self.model.xdel(key, ids))

    def trim(self, random: Random) -> None:
        key, mode = self.key(random), self.mode(random)
        threshold: int | ID = self.id(random, key)
        if random.random() < 0.6:
            there = len(self.model.streams[key].entries) if key in self.model.streams else 0
            threshold = max(0, there - random.choice((0, 1, 2, 3, 4, 99)))
        approximate, limited = random.random() < 0.5, random.random() < 0.3
        limit = random.randrange(4) if limited else 100 * NODE_MAX_ENTRIES
        words: list[Word] = ["MAXLEN" if isinstance(threshold, int) else "MINID"]
        words.append("~" if approximate else "=")
        words.append(threshold if isinstance(threshold, int) else spell(threshold))
        words += ["LIMIT", limit] if approximate and limited else []
        words.append(mode)
        trim = Trim(threshold, approximate, limit if approximate else 0, mode)
        if random.random() < 0.3:
            fields = [b"f", b"v"]
            words += [b"*", *fields]
            self.put("XADD", key, *words, to=lambda: self.model.xadd(key, None, fields, trim))
        else:
            self.put("XTRIM", key, *words, to=lambda: self.model.xtrim(key, trim))

    def xsetid(self, random: Random) -> None:
        key = self.key(random)
        stream = self.model.streams.get(key)
        last = self.id(random, key)
        if stream is not None and random.random() < 0.7:
            last = max(stream.deleted, *stream.entries, LEAST)
        marks = self.id(random, key) if random.random() < 0.4 else None
        added = random.choice((None, 0, 3, 20))
        words: list[Word] = ["XSETID", key, spell(last)]
        words += [] if added is None else ["ENTRIESADDED", added]
        words += [] if marks is None else ["MAXDELETEDID", spell(marks)]
        self.put(*words, to=lambda: self.model.xsetid(key, last, added, marks))

    def delete(self, random: Random) -> None:
        key = b"t" if random.random() < 0.9 else b"s"
        self.put("DEL", key, to=lambda: self.model.delete(key))

    def xrange(self, random: Random) -> None:
        key, back = self.key(random), random.random() < 0.5
        start, end = self.id(random, key), self.id(random, key)
        count = random.choice((None, None, 0, 1, 3, MOST))
        ends = (end, start) if back else (start, end)
        limit: list[Word] = [] if count is None else ["COUNT", count]
        name = "XREVRANGE" if back else "XRANGE"
        self.put(
            name, key, *map(spell, ends), *limit,
            to=lambda: self.model.xrange(key, start, end, count, back=back),
        )  # fmt: skip

    def xsplit(self, random: Random) -> None:
        key, parts = self.key(random), random.choice((1, 2, 3, 4, 5, MOST))
        start, end = self.id(random, key), self.id(random, key)
        if random.random() < 0.5:
            start, end = LEAST, GREATEST
        self.put(
            "XSPLIT", key, spell(start), spell(end), parts,
            to=lambda: self.model.xsplit(key, start, end, parts),
        )  # fmt: skip

    def xcounters(self, random: Random) -> None:
        keys = [self.key(random) for _ in range(random.randrange(1, 4))]
        self.put("XCOUNTERS", *keys, to=lambda: self.model.xcounters(keys))

    # --- groups ---------------------------------------------------------------------------------

    def create(self, random: Random) -> None:
        key = self.key(random)
        start = None if random.random() < 0.3 else self.id(random, key)
        self._create(key, self.group(random), start)

    def _create(self, key: bytes, name: bytes, start: ID | None) -> None:
        word = b"$" if start is None else spell(start)
        self.put(
            "XGROUP", "CREATE", key, name, word, "MKSTREAM",
            to=lambda: self.model.create(key, name, start),
        )  # fmt: skip

    def setid(self, random: Random) -> None:
        key, name = self.key(random), self.group(random)
        start, read = self.id(random, key), random.choice((-1, -1, 0, 3))
        self.put(
            "XGROUP", "SETID", key, name, spell(start), "ENTRIESREAD", read,
            to=lambda: self.model.setid(key, name, start, read),
        )  # fmt: skip

    def administer(self, random: Random) -> None:
        model, key, name = self.model, self.key(random), self.group(random)
        who, what = self.consumer(random), random.randrange(10)
        if what == 0 and name == b"h":
            self.put("XGROUP", "DESTROY", key, name, to=lambda: model.destroy(key, name))
        elif what <= 2:
            self.put(
                "XGROUP", "DELCONSUMER", key, name, who,
                to=lambda: model.delconsumer(key, name, who),
            )  # fmt: skip
        elif what <= 4:
            self.put(
                "XGROUP", "CREATECONSUMER", key, name, who,
                to=lambda: model.createconsumer(key, name, who),
            )  # fmt: skip
        else:
            self.put("XRETIRE", key, name, who, to=lambda: model.xretire(key, name, who))

    def age(self, random: Random) -> int:
        """A min-idle-time; often exactly that of a pending entry, or one more or less."""
        ages = [0, 0, 1000]
        for stream in self.model.streams.values():
            for group in stream.groups.values():
                ages += [self.model.now - one.time for one in group.pending.values() if one.owner]
        return max(0, random.choice(ages) + random.choice((-1, 0, 0, 1)))

    # --- after every step -----------------------------------------------------------------------

    @invariant()
    def is_sound_and_as_modelled(self) -> None:
        keyspace = self.store.node.keyspace
        assert broken_invariants(keyspace) == []
        ours, modelled = of_store(keyspace), of_model(self.model)
        assert ours == modelled, f"the store has\n{ours}\nthe model\n{modelled}"

    def teardown(self) -> None:
        try:
            self._replay()
        finally:
            self.patches.undo()

    def _replay(self) -> None:
        """Check that the journal's facts lead to the same state, and that applying them writes them again."""
        self.settle()
        groups, again = self.store.groups(), Keyspace()
        for facts, now_ms in groups:
            mark = len(again.facts.data)
            Replay(again).apply(memoryview(facts), now_ms)
            assert again.facts.data[mark:] == facts
        assert broken_invariants(again) == []
        assert picture(again) == picture(self.store.node.keyspace)
        self._replay_from_an_image(groups)

    def _replay_from_an_image(self, groups: list[tuple[bytes, int]]) -> None:
        """Check that an image of any moment and the facts after it lead to the same state."""
        moment = Random(len(groups)).randrange(len(groups) + 1)
        again = from_an_image(groups, moment)
        assert broken_invariants(again) == []
        assert picture(again) == picture(self.store.node.keyspace)
