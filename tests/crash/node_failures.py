"""Lets one file operation of a history of commands fail, then another, and compares what is recovered with the replies.

The files are those of `node_campaign`: journal, segments, images and MANIFEST. The disk reports an error once (EIO), no
space once (ENOSPC), or is full for some commands, so that no file can be made larger. Then the history goes on if the
store does. At the end its process ends, and it starts again, on the same machine or after a crash of the machine.
"""

from __future__ import annotations

import errno
from typing import Final

from headwater.errors import HeadwaterError
from headwater.server.session.session import Session
from tests.alarms import listening
from tests.crash.node_campaign import NodeCampaign

KINDS: Final = ("EIO", "ENOSPC", "full")
FULL_COMMANDS = 6
"""For how many commands the disk is full."""


class FailingNode(NodeCampaign):
    """A history whose file operation number ``operation`` fails. ``failed`` names the operation, or is empty if there
    are fewer."""

    def __init__(self, seed: int, kind: str, operation: int, *, commands: int = 40) -> None:
        super().__init__(seed, commands=commands, images=3, cold=True)
        self.failed = ""
        self._kind = kind
        self._left = operation
        self._full_until = 0

    @property
    def names_are_durable(self) -> bool:
        return self.failed != "sync directory"

    def run(self) -> FailingNode:
        """Run the history up to its end, or to that of the store. `failures` has what did not hold."""
        with listening() as self._heard:
            session = self._begin()
            self._files.on_operation = self._fail
            try:
                self._history(session)
            except HeadwaterError as error:
                self.failures.append(f"seed {self.seed}, after {self.failed!r}: {error}")
            self._files.on_operation = self._files.capacity = None
            where = f"seed {self.seed}, {self._kind} at {self.failed!r}"
            self._crash(where)
            self._files._locked = False
            possible = [*self._states[self.answered :], self._state()]
            self._try(self._files, f"{where}, same machine", possible)
        return self

    def _listen(self, where: str) -> None:
        """Allow alarms: a failed disk is one."""
        self._heard.clear()

    def _fail(self, line: str) -> None:
        self._left -= 1
        if self._left == -1:
            self.failed = line
            if self._kind == "full":
                self._files.capacity = self._files.used_bytes()
                self._full_until = self.done["commands"] + FULL_COMMANDS
            else:
                self._files.fail("any", error=getattr(errno, self._kind))

    def _send(self, session: Session, *words: bytes | str | int) -> None:
        if self._files.capacity is not None and self.done["commands"] >= self._full_until:
            self._files.capacity = None
        if self._store.node.state.poisoned is None:
            super()._send(session, *words)

    def _do_checkpoint(self) -> None:
        """Only after a failure a checkpoint may fail; another one may begin later."""
        if self._store.node.state.poisoned is not None:
            return
        try:
            super()._do_checkpoint()
        except (HeadwaterError, OSError):
            if not self.failed:
                raise
            self._checkpoint = None
            self.done["failed checkpoints"] += 1


def failing_nodes(seed: int, *, every: int = 1) -> tuple[int, list[str]]:
    """Let every ``every``-th operation of a history fail in each way. Return how many did, and what did not hold."""
    trials, failures = 0, list[str]()
    for number, kind in enumerate(KINDS):
        operation = number % every
        while True:
            one = FailingNode(seed, kind, operation).run()
            if not one.failed:
                break
            failures += one.failures
            trials += 1
            operation += every
    return trials, failures
