"""Crashes a node before every file operation of a history and compares the result with its replies.

`journal_campaign` tests only the journal. Here commands run, so the order within a turn is tested as well:

- what is recovered is the state after some command (I7), including owner, time and count of pending entries;
- it is the state after the newest answered command or a later one (I1): no reply is sent before its record
  is durable;
- that holds, too, while blocks are written to segments, and moved to others, and what is recovered has all bytes of
  all entries;
- it can be read from each past that ``journal-retention`` keeps, with the same result;
- nothing is logged that is an alarm (`tests.alarms`), and every segment that the journal names is there;
- a store that was recovered goes on, also if the wall clock has jumped, and recovers again.

At random turns a checkpoint begins, and ends some turns later: the image is built from the files alone, as the
helper process does it, or of the store in memory, as a clean stop does it. Between turns the wall clock jumps by hours
and days. With a fault, one file operation of the history fails instead (`node_failures`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from random import Random
from typing import Any

from headwater.config.config import Config
from headwater.engine.check import broken_invariants
from headwater.errors import HeadwaterError
from headwater.journal.images.retention import read_all, read_pasts
from headwater.journal.segments.segments import segment_numbers
from headwater.persistence.reading import StoreReader
from headwater.persistence.replaying import log_recovery, recovered_keyspace
from headwater.server.session.session import Session
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.node import Word, request
from headwater.testing.replies import Reply
from tests.alarms import listening
from tests.crash.node_store import (
    JUMPS_S,
    HelpedCheckpoint,
    SmallFiles,
    checkpoint_now,
    compact,
    content,
    opened,
)

CONSUMERS = (b"a", b"b")
RETENTIONS_S = (0, 60, 86_400)
"""Of ``journal-retention``. A history takes some minutes."""


@dataclasses.dataclass
class NodeCampaign:
    """One history of a stream and a group. ``images`` crashes are tried before each operation."""

    seed: int
    commands: int = 60
    images: int = 2
    cold: bool = False
    """Whether entries go to disk as soon as they may. The caller makes blocks small (`node_store.tiny_segments`)."""
    trials: int = 0
    answered: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)
    done: Counter[str] = dataclasses.field(default_factory=Counter)
    """How often what happened: commands, checkpoints, removed segments, bytes moved by compactions, jumps of the wall
    clock, and stores that went on after a crash."""

    def run(self) -> NodeCampaign:
        """Run the history. `failures` has what did not hold."""
        with listening() as self._heard:
            session = self._begin()
            self._files.on_operation = self._crash
            try:
                self._history(session)
            except HeadwaterError as error:
                self.failures.append(f"seed {self.seed}: the running store: {error}")
            self._files.on_operation = None
            self._crash("the end")
        return self

    def _begin(self) -> Session:
        self._random = Random(self.seed)
        self._draws = Random(self.seed + 1)
        config = Config(port=0, journal_retention=RETENTIONS_S[self.seed % len(RETENTIONS_S)])
        self._store = SmallFiles(clock=ManualClock(), cold=self.cold, config=config)
        files = self._store.files
        assert files is not None
        self._files = files
        self._states = [self._state()]
        self._checkpoint: HelpedCheckpoint | None = None
        return self._store.node.connect(kind="embedded", address="", on_output=self._take)

    @property
    def names_are_durable(self) -> bool:
        """Whether what a sync of the directory covers is durable: none has failed."""
        return True

    @property
    def stored(self) -> int:
        """How many blocks were stored."""
        return self._store.node.keyspace.sealing.stored_count

    # --- the history ------------------------------------------------------------------------------

    def _history(self, session: Session) -> None:
        self._send(session, b"XGROUP", b"CREATE", b"s", b"g", b"0", b"MKSTREAM")
        for number in range(1, self.commands):
            self._store.clock.advance(self._random.choice((0.001, 1.0, 30.0)))
            if self._random.random() < 0.1:
                self._store.clock.jump(self._random.choice(JUMPS_S))
                self.done["jumps"] += 1
            self._send(session, *self._command(number))
            self._do_checkpoint()

    def _command(self, number: int) -> tuple[Word, ...]:
        random = self._random
        who, some = random.choice(CONSUMERS), b"%d-1" % random.randrange(1, number + 1)
        commands: list[tuple[Word, ...]] = [
            (b"XADD", b"s", b"%d-1" % number, b"n", number),
            (b"XADD", b"s", b"%d-1" % number, b"n", number),
            (b"XREADGROUP", b"GROUP", b"g", who, b"COUNT", 2, b"STREAMS", b"s", b">"),
            (b"XCLAIM", b"s", b"g", who, 1000, some),
            (b"XAUTOCLAIM", b"s", b"g", who, 1000, 0, b"COUNT", 3),
            (b"XACK", b"s", b"g", some),
            (b"XDEL", b"s", some),
        ]
        if self.cold:
            commands += [
                (b"XADD", b"s", b"%d-1" % number, b"n", number, b"pad", b"x" * (number % 50)),
                (b"XADD", b"s", b"%d-1" % number, b"n", number, b"pad", b"y" * (number % 90)),
                (b"XTRIM", b"s", b"MINID", b"%d-0" % random.randrange(1, number + 1)),
                (b"COPY", b"s", b"t", b"REPLACE"),
                random.choice(((b"DEL", b"t"), (b"RENAME", b"t", b"s"), (b"XDEL", b"t", some))),
            ]
        return random.choice(commands)

    def _do_checkpoint(self) -> None:
        """Begin, make or end a checkpoint between two turns, or do nothing."""
        chance, running = self._random.random(), self._checkpoint
        if running is None:
            if chance < 0.1:
                self._checkpoint = HelpedCheckpoint(self._store)
            elif chance < 0.15:
                checkpoint_now(self._store)
                self.done["checkpoints"] += 1
        elif chance < 0.3:
            if not running.is_built:
                running.build()
                return
            self._checkpoint = None
            self.done["removed segments"] += len(running.end())
            self.done["checkpoints"] += 1
            if self.cold:
                self.done["moved bytes"] += compact(self._store)

    def _send(self, session: Session, *words: Word) -> None:
        """Run one command in one turn."""
        session.feed(request(words))
        self._store.node.turn([session])
        self.done["commands"] += 1
        self._states.append(self._state())
        if self.cold:
            self._store.use_disk()

    def _take(self, session: Session) -> None:
        """Count a reply that was sent: from now on its command must not be lost."""
        if session.output.take_bytes():
            self.answered += 1

    def _state(self) -> Any:
        return content(self._store.node.keyspace)

    # --- crashes ----------------------------------------------------------------------------------

    def _crash(self, line: str) -> None:
        where = f"seed {self.seed}, before {line!r}"
        self._listen(f"{where}: the running store")
        try:
            # The current command has changed the state. It may be in the journal or not.
            possible = [*self._states[self.answered :], self._state()]
        except HeadwaterError as error:
            self.failures.append(f"{where}: the running store: {error}")
            return
        seed = self._draws.randrange(2**32)
        for image in self._files.crash_images(seed=seed, count=self.images):
            self._try(image, where, possible)

    def _try(self, image: CrashableFiles, where: str, possible: list[Any]) -> None:
        """Recover one image. Some of the stores go on, and crash again."""
        self.trials += 1
        try:
            if self._draws.random() < 0.1:
                found = self._go_on(image, where)
            else:
                found = recovered(image, all_pasts=self.names_are_durable)
        except (HeadwaterError, OSError, AssertionError) as error:
            self.failures.append(f"{where}: {error}")
            return
        if found not in possible:
            lost = found in self._states
            what = "a state from before it" if lost else "a state that never existed"
            self.failures.append(
                f"{where}: command {self.answered} was answered, and {what} was recovered"
            )
        self._listen(where)

    def _listen(self, where: str) -> None:
        """Count alarms as failures: nothing is damaged."""
        self.failures += [f"{where}: a false alarm: {line}" for line in self._heard]
        self._heard.clear()

    def _go_on(self, image: CrashableFiles, where: str) -> Any:
        """Open a store whose wall clock has jumped, and use it. Return what it was opened with."""
        clock = ManualClock()
        clock.jump(self._draws.choice(JUMPS_S))
        store = SmallFiles(clock=clock, cold=self.cold, files=image)
        found = content(store.node.keyspace)
        client = store.client()
        store.advance(2.0)
        last = found.get(b"s", {"counters": ((0, 0),)})["counters"][0]
        added = client("XADD", "s", "*", "again", "x" * self._draws.randrange(60))
        assert isinstance(added, bytes), f"XADD after a restart: {added!r}"
        ms, _, seq = added.partition(b"-")
        assert (int(ms), int(seq)) > last, f"{added!r} was added after {last}"
        client("XREADGROUP", "GROUP", "g", "again", "STREAMS", "s", ">")
        assert all(idle >= 0 for idle in idle_times(client("XPENDING", "s", "g", "-", "+", 99)))
        client("SET", "durable", "1")
        if self._draws.random() < 0.3:
            checkpoint_now(store)
        before = content(store.node.keyspace)
        for second in image.crash_images(seed=self.seed, count=1):
            if recovered(second, all_pasts=self.names_are_durable) != before:
                what = "a state from before it"
                self.failures.append(
                    f"{where}: the store went on and crashed again, and {what} was recovered"
                )
        self.done["went on"] += 1
        return found


def recovered(image: CrashableFiles, *, all_pasts: bool) -> Any:
    """Return the content that is recovered, after it was also read from each past; with ``all_pasts`` the files of each
    must be there. Raises `HeadwaterError`, and `AssertionError` if an invariant is broken."""
    journal = opened(image)
    keyspace = recovered_keyspace(journal)
    log_recovery(journal.recovery, keyspace)
    broken = broken_invariants(keyspace)
    assert broken == [], f"broken invariants: {broken}"
    found = content(keyspace)
    known = read_all(image)
    if all_pasts:
        assert known[:-1] == read_pasts(image), "a past without its files"
        missing = keyspace.named_segments - set(segment_numbers(image))
        assert not missing, f"the journal names segments that were removed: {missing}"
    for past in known[:-1]:
        reader = StoreReader(image, past=known[-1]._replace(image=past.image, first=past.first))
        reader.apply_image()
        for batch in reader.of_journal():
            reader.applying.apply(batch)
        assert content(reader.applying.finish()) == found, f"another state, read from {past}"
    return found


def idle_times(reply: Reply) -> list[int]:
    """Return the idle times in a reply of XPENDING, an empty list if there is no such group."""
    rows = reply if isinstance(reply, list) else []
    return [row[2] for row in rows if isinstance(row, list) and isinstance(row[2], int)]
