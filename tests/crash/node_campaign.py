"""Crashes a node before every file operation of a history and compares the result with its replies.

`journal_campaign` tests only the journal. Here commands run, so the order within a turn is tested as well:

- what is recovered is the state after some command (I7), including owner, time and count of pending entries;
- it is the state after the newest answered command or a later one (I1): no reply is sent before its record
  is durable;
- that holds, too, while blocks are written to segments, and what is recovered has all entries.

At random turns a checkpoint begins, and ends some turns later: the image is built from the files alone, as the
helper process does it, or of the store in memory, as a clean stop does it.
"""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

from headwater.errors import HeadwaterError
from headwater.journal.journal import Journal
from headwater.journal.manifest import ImageEntry
from headwater.journal.rotation import Rotation
from headwater.persistence.building import build_image, checkpoint
from headwater.persistence.order import CheckpointOrder
from headwater.persistence.replaying import recovered_keyspace
from headwater.server.session.session import Session
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.node import LocalStore, Word, request
from tests.property.pictures import of_store

FILE_BYTES = 1024
CONSUMERS = (b"a", b"b")


class SmallFiles(LocalStore):
    """A store that often begins another journal file, and so replaces MANIFEST often."""

    def _journal(self, files: CrashableFiles) -> Journal:
        return opened(files)


@dataclasses.dataclass
class NodeCampaign:
    """One history of a stream and a group. ``images`` crashes are tried before each operation."""

    seed: int
    commands: int = 60
    images: int = 2
    cold: bool = False
    """Whether entries go to disk as soon as they may. The caller makes blocks small."""
    trials: int = 0
    answered: int = 0
    checkpoints: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)

    def run(self) -> NodeCampaign:
        """Run the history. `failures` has what did not hold."""
        self._random = Random(self.seed)
        self._store = SmallFiles(clock=ManualClock(), cold=self.cold)
        files = self._store.files
        assert files is not None
        self._files = files
        self._states = [self._state()]
        self._begun: Rotation | None = None
        self._made: ImageEntry | None = None
        session = self._store.node.connect(kind="embedded", address="", on_output=self._take)
        files.on_operation = self._crash
        self._history(session)
        files.on_operation = None
        self._crash("the end")
        return self

    @property
    def stored(self) -> int:
        """How many blocks were stored."""
        return self._store.node.keyspace.sealing.stored_count

    def _history(self, session: Session) -> None:
        self._send(session, b"XGROUP", b"CREATE", b"s", b"g", b"0", b"MKSTREAM")
        for number in range(1, self.commands):
            self._store.clock.advance(self._random.choice((0.001, 1.0, 30.0)))
            self._send(session, *self._command(number))
            self._checkpoint()

    def _command(self, number: int) -> tuple[Word, ...]:
        random = self._random
        who, some = random.choice(CONSUMERS), b"%d-1" % random.randrange(1, number + 1)
        return random.choice(
            (
                (b"XADD", b"s", b"%d-1" % number, b"n", number),
                (b"XADD", b"s", b"%d-1" % number, b"n", number),
                (b"XREADGROUP", b"GROUP", b"g", who, b"COUNT", 2, b"STREAMS", b"s", b">"),
                (b"XCLAIM", b"s", b"g", who, 1000, some),
                (b"XAUTOCLAIM", b"s", b"g", who, 1000, 0, b"COUNT", 3),
                (b"XACK", b"s", b"g", some),
                (b"XDEL", b"s", some),
            )
        )

    def _checkpoint(self) -> None:
        """Begin, make or end a checkpoint between two turns, or do nothing."""
        journal, chance = self._store.node.journal, self._random.random()
        assert journal is not None
        if self._begun is not None and self._made is None and chance < 0.3:
            order = CheckpointOrder("", "", journal.seed, journal.image, self._begun, 0, "none")
            self._made = build_image(self._files, order).entry
        elif self._begun is not None and self._made is not None and chance < 0.3:
            journal.use_image(self._begun, self._made)
            journal.remove_replaced()
            self._begun = self._made = None
            self.checkpoints += 1
        elif self._begun is None and chance < 0.1:
            self._begun = journal.rotate()
        elif self._begun is None and chance < 0.15:
            checkpoint(journal, self._store.node.keyspace)
            self.checkpoints += 1

    def _send(self, session: Session, *words: Word) -> None:
        """Run one command in one turn."""
        session.feed(request(words))
        self._store.node.turn([session])
        self._states.append(self._state())
        if self.cold:
            self._store.use_disk()

    def _take(self, session: Session) -> None:
        """Count a reply that was sent: from now on its command must not be lost."""
        if session.output.take_bytes():
            self.answered += 1

    def _state(self) -> Any:
        return stored(of_store(self._store.node.keyspace))

    def _crash(self, line: str) -> None:
        # The current command has changed the state. It may be in the journal or not.
        possible = [*self._states[self.answered :], self._state()]
        for image in self._files.crash_images(
            seed=self._random.randrange(2**32), count=self.images
        ):
            self.trials += 1
            try:
                found = stored(of_store(recovered_keyspace(opened(image))))
            except HeadwaterError as error:
                self.failures.append(f"seed {self.seed}, before {line!r}: {error}")
                continue
            if found not in possible:
                lost = found in self._states
                what = "a state from before it" if lost else "a state that never existed"
                self.failures.append(
                    f"seed {self.seed}, before {line!r}: command {self.answered} was answered, and "
                    f"{what} was recovered"
                )


def opened(image: CrashableFiles) -> Journal:
    return Journal.open(image, policy="always", file_bytes=FILE_BYTES, clock=ManualClock())


def stored(picture: dict[bytes, Any]) -> dict[bytes, Any]:
    """Remove the times at which consumers were seen, which may be lost (rule 3 of ARCHITECTURE.md)."""
    for stream in picture.values():
        for group in stream["groups"].values():
            group["consumers"] = sorted(group["consumers"])
    return picture
