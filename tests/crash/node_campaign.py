"""Crashes a node before every file operation of a history and compares the result with its replies.

`journal_campaign` tests only the journal. Here commands run, so the order within a turn is tested as well:

- what is recovered is the state after some command (I7), including owner, time and count of pending entries;
- it is the state after the newest answered command or a later one (I1): no reply is sent before its record
  is durable.
"""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

from headwater.journal.journal import Journal
from headwater.server.replaying import recovered_keyspace
from headwater.server.session.session import Session
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.node import LocalStore, Word, request
from tests.property.pictures import of_store

FILE_BYTES = 64 * 1024
CONSUMERS = (b"a", b"b")


@dataclasses.dataclass
class NodeCampaign:
    """One history of a stream and a group. ``images`` crashes are tried before each operation."""

    seed: int
    commands: int = 60
    images: int = 2
    trials: int = 0
    answered: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)

    def run(self) -> NodeCampaign:
        """Run the history. `failures` has what did not hold."""
        self._random = Random(self.seed)
        self._store = LocalStore(clock=ManualClock())
        files = self._store.files
        assert files is not None
        self._files = files
        self._states = [self._state()]
        session = self._store.node.connect(kind="embedded", address="", on_output=self._take)
        files.on_operation = self._crash
        self._history(session)
        files.on_operation = None
        self._crash("the end")
        return self

    def _history(self, session: Session) -> None:
        self._send(session, b"XGROUP", b"CREATE", b"s", b"g", b"0", b"MKSTREAM")
        for number in range(1, self.commands):
            self._store.clock.advance(self._random.choice((0.001, 1.0, 30.0)))
            self._send(session, *self._command(number))

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

    def _send(self, session: Session, *words: Word) -> None:
        """Run one command in one turn."""
        session.feed(request(words))
        self._store.node.turn([session])
        self._states.append(self._state())

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
            found = stored(of_store(recovered_keyspace(opened(image))))
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
