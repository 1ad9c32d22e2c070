"""Any history of keys and values: the invariants hold after every command, writes are admitted first, and the
journal restores the same state by the same facts.

tests/conformance compares the replies with real servers; this module checks what those cannot show. Streams
with groups, delays and idempotent producers are renamed, copied, moved and swapped.
"""

from __future__ import annotations

from random import Random

import pytest

from headwater.engine.check import broken_invariants
from headwater.engine.groups import pending
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure
from tests.blocks import tiny_blocks
from tests.conformance.endpoints import Command
from tests.conformance.histories import Options
from tests.conformance.histories_keys import KeyHistory
from tests.crash.journal_tools import WatchedJournal, command_bytes
from tests.property.state import from_an_image, picture


class StoreHistory(KeyHistory):
    """A history that includes Headwater's own commands and short expiries."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "headwater")
        self.steps += [(8, self.our_stream), (3, self.soon)]

    def commands(self, count: int) -> list[Command]:
        """Return commands that sometimes create a stream with groups and pending entries, and use it."""
        found: list[Command] = []
        while len(found) < count:
            found += super().commands(8)
            if self.random.random() < 0.4:
                found += [self._bytes(words) for words in self.whole_stream()]
        return found

    def whole_stream(self) -> list[Options]:
        key, who, ms = self._key(), self._consumer(), self.ms + 1
        self.ms += 6
        found: list[Options] = [["DEL", key]]
        found += [["XADD", key, f"{ms + at}-0", "n", at] for at in range(6)]
        found += [["XGROUP", "CREATE", key, name, 0] for name in "gh"]
        found += [["XREADGROUP", "GROUP", "g", who, "COUNT", 5, "STREAMS", key, ">"]]
        found += [["XNACK", key, "g", "FAIL", "IDS", 2, f"{ms}-0", f"{ms + 1}-0"]]
        delay = self._one(100, 5000)
        found += [["XSETTLE", key, "g", who, "FAIL", "DELAY", delay, "IDS", 1, f"{ms + 2}-0"]]
        found += [["XCLAIM", key, "g", "b", 0, f"{ms + 4}-0", "RETRYCOUNT", 2**40]]
        found += [["XDEL", key, f"{ms + 1}-0"], *[self.our_stream() for _ in range(2)]]
        other = self._key()
        return [*found, ["COPY", key, other, "REPLACE"], self.move(), self.our_stream()]

    def our_stream(self) -> Options:
        key, what = self._key(), self.random.randrange(5)
        if what == 0:
            return ["XADD", key, "IDMP", self._one("p", "q"), self._one("i", "j", "k"), "*", "n", 1]
        if what == 1:
            return ["XNACK", key, "g", "FAIL", "IDS", 1, self._id()]
        if what == 2:
            delay = self._one(100, 5000)
            consumer = self._consumer()
            return ["XSETTLE", key, "g", consumer, "FAIL", "DELAY", delay, "IDS", 1, self._id()]
        if what == 3:
            return ["XCFGSET", key, "IDMP-MAXSIZE", self._one(1, 2, 9)]
        return ["XREADGROUP", "GROUP", "g", self._consumer(), "CLAIM", 0, "STREAMS", key, ">"]

    def soon(self) -> Options:
        return ["PEXPIRE", self._key(), self._one(1, 900, 4000)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_blocks(monkeypatch)
    monkeypatch.setattr(pending, "PENDING_BLOCK_RECORDS", 4)


def recovered(groups: list[tuple[bytes, int]]) -> tuple[Keyspace, bytes]:
    """Return the state recovered from a journal, and the facts that applying it wrote."""
    keyspace = Keyspace()
    for facts, now_ms in groups:
        Replay(keyspace).apply(memoryview(facts), now_ms)
    return keyspace, bytes(keyspace.facts.data)


def live(seed: int, commands: int, patches: pytest.MonkeyPatch) -> LocalStore:
    """Return a store after a history, with the seen times of all consumers written."""
    store, random = LocalStore(cold=True), Random(seed)
    store.settings.node_max_entries = 3
    client, asked = store.client(), 0
    journal = store.node.records.journal
    assert journal is not None
    admit = client.session.call.admission

    def noted(size: int) -> str | None:
        nonlocal asked
        asked = max(asked, size)
        return admit(size)

    def checked(buffer: bytearray, _sync: bool) -> None:
        written = command_bytes(buffer, journal.seed)
        assert by_itself or written <= asked, f"{written} bytes, admitted {asked}"

    client.session.call.admission = noted
    patches.setattr(store.node.records, "journal", WatchedJournal(journal, checked))
    for command in StoreHistory(seed).commands(commands):
        by_itself = True
        if random.random() < 0.15:
            store.advance(random.choice((0.001, 0.5, 3)))
        by_itself, asked = store.node.next_deadline() is not None, 0
        client.send(*command)
        reply = client.reply()
        assert reply is not None, command
        assert not isinstance(reply, Failure) or not reply.text.startswith(b"MISCONF"), reply
        assert broken_invariants(store.node.keyspace) == [], command
    by_itself = True
    store.advance(2)
    client("DISCARD")
    client("SET", "mark", 1)
    return store


def agrees(seed: int, commands: int) -> None:
    # Given a store with a history
    with pytest.MonkeyPatch.context() as patches:
        store = live(seed, commands, patches)
    before = picture(store.node.keyspace)
    # When its journal is replayed
    keyspace, written = recovered(store.groups())
    # Then the state and the facts are the same
    assert picture(keyspace) == before
    assert written == b"".join(store.facts())
    assert broken_invariants(keyspace) == []
    # And an image of any moment with the facts after it gives that state, too
    for moment in Random(seed).sample(range(len(store.facts())), 3):
        again = from_an_image(store.groups(), moment)
        assert picture(again) == before
        assert broken_invariants(again) == []


@pytest.mark.parametrize("seed", range(12))
def test_any_history_of_keys_keeps_invariants_and_is_recovered(seed: int) -> None:
    agrees(seed, 250)


@pytest.mark.slice
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_long_histories_of_keys_keep_invariants_and_are_recovered(seed: int) -> None:
    agrees(seed, 600)
