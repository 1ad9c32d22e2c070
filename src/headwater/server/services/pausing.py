"""CLIENT PAUSE: for a time commands wait, all of them or only those that may change something.

Rule 1. A command that may not run yet is kept as it came and its client counts as blocked; when the
        pause ends it runs from the start, in the order in which they came. CLIENT UNBLOCK does not
        touch it.
Rule 2. What stands before the pause (arity, password, ACL) is refused at once. Readers that were
        blocked before go on waiting, and their time runs out as ever.
Rule 3. The end is a monotonic time and only ever moves away; a pause of everything does not become
        one of writes. CLIENT UNPAUSE ends it, which during a pause of everything waits as well.
Rule 4. A blocked reader that is woken meanwhile is served at the end. Time goes on: keys expire.

Source: Redis, networking.c, pauseActions; redis.io/commands/client-pause.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from headwater.commands.call import Wait
from headwater.commands.dispatch import find_command
from headwater.commands.table import Command
from headwater.resp.arguments import Arguments

if TYPE_CHECKING:
    from headwater.server.services.waiting import Waiter
    from headwater.server.session.session import Session

_MAY_CHANGE = ("write", "may_replicate")


class ClientPause:
    """The pause of a node; nothing is paused while ``until`` is infinite."""

    def __init__(self) -> None:
        self.until = inf
        """Monotonic seconds of its end."""
        self.active = False
        self.everything = False
        self._waiting: dict[Session, Arguments] = {}
        self._missed: dict[Waiter, None] = {}

    def begin(self, until: float, *, everything: bool) -> None:
        """Pause, or extend the pause that there is."""
        self.everything |= everything
        self.until = max(until, self.until) if self.active else until
        self.active = True

    def holds(self, session: Session, row: Command) -> bool:
        """Whether a command has to wait."""
        if self.everything:
            return True
        if row.name == "exec":
            queued = session.transaction.queue
            return queued is not None and any(
                _may_change(known.command) for known in set(queued.commands)
            )
        return _may_change(row)

    def postpone(self, session: Session, arguments: Arguments) -> Wait:
        """Keep a request until the end."""
        kept = arguments.copy()
        self._waiting[session] = kept
        return Wait([], 0, kept)

    def holds_again(self, waiter: Waiter) -> bool:
        """Whether a blocked command that was woken has to wait; then it is run again at the end."""
        held = self.holds(waiter.session, find_command(waiter.wait.arguments).command)
        if held:
            self._missed[waiter] = None
        return held

    def take_missed(self) -> list[Waiter]:
        """Who was woken and not run, first come first."""
        missed, self._missed = list(self._missed), {}
        return missed

    def __contains__(self, session: object) -> bool:
        return session in self._waiting

    def forget(self, session: Session) -> None:
        """The client is gone."""
        self._waiting.pop(session, None)

    def end(self) -> dict[Session, Arguments]:
        """End the pause; who waited, with what."""
        waiting, self._waiting = self._waiting, {}
        self.until, self.active, self.everything = inf, False, False
        return waiting


def _may_change(row: Command) -> bool:
    return any(flag in row.flags for flag in _MAY_CHANGE)
