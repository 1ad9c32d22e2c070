"""A machine that draws commands and puts each to the store and to the naive model.

Here are the rules for entries, groups and reads, time and crashes; `machine_pending` has those for
what is pending.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.engine import entry_log, pending
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace import Keyspace
from headwater.engine.replay import apply
from headwater.testing.node import LocalStore, Word
from headwater.testing.replies import Reply, Simple
from tests.property.model import GREATEST, ID, LEAST, Refused, Trim, refusal, spell
from tests.property.model_groups import Model
from tests.property.pictures import of_model, of_store
from tests.property.state import picture

NODE_MAX_ENTRIES = 3

keys = st.sampled_from([b"s", b"s", b"s", b"t"])
groups = st.sampled_from([b"g", b"g", b"h"])
consumers = st.sampled_from([b"a", b"b", b""])
picks = st.lists(st.integers(0, 60), min_size=1, max_size=5)
pick = st.integers(0, 60)
counts = st.sampled_from([0, 0, 1, 2, 3])
idles = st.sampled_from([0, 0, 1, 1000, 5000])
modes = st.sampled_from([b"KEEPREF", b"DELREF", b"ACKED"])
maybe = st.booleans()


class StoreMachine(RuleBasedStateMachine):
    """One store, one client, one model."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(entry_log, "BLOCK_MAX_BYTES", 160)
        self.patches.setattr(pending, "PENDING_BLOCK_RECORDS", 4)
        self.store = LocalStore()
        self._begin()
        self.model = Model(now=self.store.clock.now_ms(), node_max_entries=NODE_MAX_ENTRIES)
        self.queue: list[tuple[tuple[Word, ...], Callable[[], Reply]]] | None = None

    def _begin(self) -> None:
        self.store.settings.node_max_entries = NODE_MAX_ENTRIES
        self.store.settings.node_max_bytes = 0
        self.client = self.store.client()

    # --- how a command is put to both -----------------------------------------------------------

    def put(self, *words: Word, to: Callable[[], Reply]) -> None:
        """Put a command to the store and its meaning ``to`` the model, or queue both."""
        if self.queue is not None:
            self.queue.append((words, to))
            return
        self.model.come_due()
        expected = self._expected(to)
        reply = self.client(*words)
        assert reply == expected, f"{words}: the store says {reply}, the model {expected}"

    @staticmethod
    def _expected(meaning: Callable[[], Reply]) -> Reply:
        try:
            return meaning()
        except Refused as error:
            return refusal(error)

    def id(self, key: bytes, number: int) -> ID:
        """One of the ids that mean something to the stream, or one that does not."""
        stream = self.model.streams.get(key)
        known = {LEAST, (7, 7)}
        if stream is not None:
            known |= stream.entries.keys() | {stream.last, stream.deleted}
            for group in stream.groups.values():
                known |= group.pending.keys()
        return sorted(known)[-1 - number % len(known)]

    def ids(self, key: bytes, numbers: list[int]) -> list[ID]:
        return [self.id(key, number) for number in numbers]

    # --- time, transactions, power --------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for key in (b"s", b"t"):
            self.create(key, b"g", 0, start_is_last=True)

    @rule(ms=st.sampled_from([1, 1, 10, 1000, 5000]))
    def advance(self, ms: int) -> None:
        self.store.advance(ms / 1000)
        self.model.now = self.store.clock.now_ms()
        self.model.come_due()

    @rule(ms=st.sampled_from([1, 3000]))
    def set_clock_back(self, ms: int) -> None:
        self.store.clock.set_back(ms)
        self.model.now = self.store.clock.now_ms()

    @rule()
    def multi(self) -> None:
        if self.queue is None:
            self.queue = []
            return
        queue, self.queue = self.queue, None
        assert self.client("MULTI") == Simple(b"OK")
        for words, _ in queue:
            assert self.client(*words) == Simple(b"QUEUED")
        self.model.come_due()
        expected = [self._expected(meaning) for _, meaning in queue]
        replies = self.client("EXEC")
        assert replies == expected, f"{queue}: the store says {replies}, the model {expected}"

    def settle(self) -> None:
        """Times of consumers that were only seen are written down within a second, and are durable
        with the next command that is."""
        self.store.advance(1.5)
        self.model.now = self.store.clock.now_ms()
        self.model.come_due()
        self.client("SET", "mark", self.model.now)

    @rule()
    def lose_power(self) -> None:
        self.settle()
        self.store.crash()
        self._begin()

    # --- entries --------------------------------------------------------------------------------

    @rule(key=keys, size=st.integers(0, 40), number=st.integers(0, 2), given_id=maybe)
    def xadd(self, key: bytes, size: int, number: int, given_id: bool) -> None:
        wanted = self.id(key, number) if given_id and number else None
        fields = [b"f", b"x" * size]
        name = b"*" if wanted is None else spell(wanted)
        self.put("XADD", key, name, *fields, to=lambda: self.model.xadd(key, wanted, fields))

    @rule(key=keys, number=pick)
    def xadd_next(self, key: bytes, number: int) -> None:
        last = self.model.streams[key].last if key in self.model.streams else LEAST
        wanted = (last[0] + number % 3, last[1] + 1)
        fields = [b"f", b"v", b"g", b""]
        self.put(
            "XADD", key, spell(wanted), *fields, to=lambda: self.model.xadd(key, wanted, fields)
        )

    @rule(key=keys, numbers=picks)
    def xdel(self, key: bytes, numbers: list[int]) -> None:
        ids = self.ids(key, numbers)
        self.put("XDEL", key, *map(spell, ids), to=lambda: self.model.xdel(key, ids))

    @rule(
        key=keys,
        most=st.integers(0, 8),
        number=pick,
        by_id=maybe,
        approximate=maybe,
        limit=st.sampled_from([None, 0, 2]),
        mode=modes,
        adds=maybe,
    )
    def trim(
        self,
        key: bytes,
        most: int,
        number: int,
        by_id: bool,
        approximate: bool,
        limit: int | None,
        mode: bytes,
        adds: bool,
    ) -> None:
        threshold = self.id(key, number) if by_id else most
        trim = Trim(threshold, approximate, limit or 0, mode)
        words: list[Word] = ["MAXLEN" if isinstance(threshold, int) else "MINID"]
        words.append("~" if approximate else "=")
        words.append(threshold if isinstance(threshold, int) else spell(threshold))
        if approximate and limit is not None:
            words += ["LIMIT", limit]
        words.append(mode)
        if adds:
            fields = [b"f", b"v"]
            words += [b"*", *fields]
            self.put("XADD", key, *words, to=lambda: self.model.xadd(key, None, fields, trim))
        else:
            self.put("XTRIM", key, *words, to=lambda: self.model.xtrim(key, trim))

    @rule(key=keys, back=st.integers(0, 2), deleted=st.one_of(st.none(), pick), more=counts)
    def xsetid(self, key: bytes, back: int, deleted: int | None, more: int) -> None:
        last = self.id(key, back)
        marks = None if deleted is None else self.id(key, deleted)
        added = None if not more else more * 10
        words: list[Word] = ["XSETID", key, spell(last)]
        words += [] if added is None else ["ENTRIESADDED", added]
        words += [] if marks is None else ["MAXDELETEDID", spell(marks)]
        self.put(*words, to=lambda: self.model.xsetid(key, last, added, marks))

    @rule(key=st.sampled_from([b"s", b"t", b"t", b"t"]), really=st.integers(0, 3))
    def delete(self, key: bytes, really: int) -> None:
        if really == 0:
            self.put("DEL", key, to=lambda: self.model.delete(key))

    @rule(
        key=keys, numbers=st.tuples(pick, pick), count=st.sampled_from([None, 0, 1, 3]), back=maybe
    )
    def xrange(self, key: bytes, numbers: tuple[int, int], count: int | None, back: bool) -> None:
        start, end = self.id(key, numbers[0]), self.id(key, numbers[1])
        ends = (end, start) if back else (start, end)
        limit: list[Word] = [] if count is None else ["COUNT", count]
        name = "XREVRANGE" if back else "XRANGE"
        self.put(
            name, key, *map(spell, ends), *limit,
            to=lambda: self.model.xrange(key, start, end, count, back=back),
        )  # fmt: skip

    @rule(key=keys, numbers=st.tuples(pick, pick), parts=st.integers(1, 5), whole=maybe)
    def xsplit(self, key: bytes, numbers: tuple[int, int], parts: int, whole: bool) -> None:
        start, end = self.id(key, numbers[0]), self.id(key, numbers[1])
        if whole:
            start, end = LEAST, GREATEST
        self.put(
            "XSPLIT", key, spell(start), spell(end), parts,
            to=lambda: self.model.xsplit(key, start, end, parts),
        )  # fmt: skip

    @rule(key=keys, number=st.one_of(st.none(), pick), count=counts)
    def xread(self, key: bytes, number: int | None, count: int) -> None:
        last = None if number is None else self.id(key, number)
        word = b"+" if last is None else spell(last)
        self.put(
            "XREAD", "COUNT", count, "STREAMS", key, b"t", word, b"0",
            to=lambda: self.model.xread([(key, last), (b"t", LEAST)], count),
        )  # fmt: skip

    # --- groups ---------------------------------------------------------------------------------

    @rule(key=keys, name=groups, number=pick, start_is_last=maybe)
    def create(self, key: bytes, name: bytes, number: int, start_is_last: bool) -> None:
        start = None if start_is_last else self.id(key, number)
        word = b"$" if start is None else spell(start)
        self.put(
            "XGROUP", "CREATE", key, name, word, "MKSTREAM",
            to=lambda: self.model.create(key, name, start),
        )  # fmt: skip

    @rule(key=keys, name=groups, number=pick, read=st.sampled_from([-1, -1, 0, 3]))
    def setid(self, key: bytes, name: bytes, number: int, read: int) -> None:
        start = self.id(key, number)
        self.put(
            "XGROUP", "SETID", key, name, spell(start), "ENTRIESREAD", read,
            to=lambda: self.model.setid(key, name, start, read),
        )  # fmt: skip

    @rule(key=keys, name=groups, who=consumers, what=st.integers(0, 9))
    def administer(self, key: bytes, name: bytes, who: bytes, what: int) -> None:
        model = self.model
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

    @rule(
        name=groups,
        who=consumers,
        reads=st.lists(
            st.tuples(keys, st.one_of(st.none(), st.none(), pick)), min_size=1, max_size=3
        ),
        count=counts,
        claim=st.one_of(st.none(), idles),
        noack=st.sampled_from([False, False, False, True]),
    )
    def xreadgroup(
        self,
        name: bytes,
        who: bytes,
        reads: list[tuple[bytes, int | None]],
        count: int,
        claim: int | None,
        noack: bool,
    ) -> None:
        asked = [(key, None if at is None else self.id(key, at)) for key, at in reads]
        words: list[Word] = ["XREADGROUP", "GROUP", name, who, "COUNT", count]
        words += [] if claim is None else ["CLAIM", claim]
        words += ["NOACK"] if noack else []
        words += ["STREAMS", *(key for key, _ in asked)]
        words += [b">" if at is None else spell(at) for _, at in asked]
        self.put(
            *words,
            to=lambda: self.model.xreadgroup(
                name, who, asked, count=count, claim=claim, noack=noack
            ),
        )

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
        """The journal's facts lead to the same state, and applying them records them again."""
        self.settle()
        again = Keyspace()
        for facts in self.store.facts():
            mark = len(again.facts.data)
            apply(again, memoryview(facts))
            assert again.facts.data[mark:] == facts
        assert broken_invariants(again) == []
        assert picture(again) == picture(self.store.node.keyspace)
