"""CLIENT PAUSE: delays commands for a time, either all or only those that may change something.

Rule 1. A command that has to wait is stored, and its client counts as blocked. When the pause ends,
        the commands run from their start, in order of arrival. CLIENT UNBLOCK does not affect them.
Rule 2. Errors that are detected before the pause (arity, password, ACL) get their reply immediately.
        Readers that were already blocked keep waiting, and their timeouts still apply.
Rule 3. The end is a monotonic time. A second pause can only move it later, and does not reduce a
        pause of all commands to one of writes. CLIENT UNPAUSE ends the pause; during a pause of all
        commands it waits as well.
Rule 4. A blocked reader that is signalled during the pause is served when the pause ends. Time
        continues: keys expire, but they are deleted when the pause ends.
Rule 5. A script with a shebang may change something unless its flags include ``no-writes``. A
        script without a shebang may if its command is EVAL or EVALSHA.

Source: Redis, networking.c, pauseActions; redis.io/commands/client-pause.
"""

from __future__ import annotations

from math import inf

from headwater.commands.call import Wait
from headwater.commands.dispatch import KnownCommand, find_command
from headwater.resp.arguments import Arguments
from headwater.server.services.scripting.cache import Scripts
from headwater.server.services.waiting import Waiter
from headwater.server.session.session import Session


class ClientPause:
    """The pause of a node. If ``until`` is infinite, the node is not paused."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self.until = inf
        """Monotonic time of the end, in seconds."""
        self.active = False
        self.everything = False
        self._waiting: dict[Session, Arguments] = {}
        self._missed: dict[Waiter, None] = {}

    def begin(self, until: float, *, everything: bool) -> None:
        """Start a pause, or extend the current one."""
        self.everything |= everything
        self.until = max(until, self.until) if self.active else until
        self.active = True

    def holds(self, session: Session, known: KnownCommand, arguments: Arguments) -> bool:
        """Return whether a command has to wait."""
        if self.everything:
            return True
        queue = session.transaction.queue
        if known.name != b"EXEC" or queue is None:
            return self._may_change(known, arguments)
        queued = Arguments()
        queue.begin()
        return any(queue.next(queued) and self._may_change(each, queued) for each in queue.commands)

    def _may_change(self, known: KnownCommand, arguments: Arguments) -> bool:
        flags = self._scripts.declared(known, arguments)
        return known.command.may_change if flags is None else b"no-writes" not in flags

    def postpone(self, session: Session, arguments: Arguments) -> Wait:
        """Store a request until the end of the pause."""
        kept = arguments.copy()
        self._waiting[session] = kept
        return Wait([], 0, kept)

    def holds_again(self, waiter: Waiter) -> bool:
        """Return whether a signalled command has to wait. It then runs again when the pause ends."""
        arguments = waiter.wait.arguments
        held = self.holds(waiter.session, find_command(arguments), arguments)
        if held:
            self._missed[waiter] = None
        return held

    def take_missed(self) -> list[Waiter]:
        """Return the waiters that were signalled and not run, in order of arrival."""
        missed, self._missed = list(self._missed), {}
        return missed

    def __contains__(self, session: object) -> bool:
        return session in self._waiting

    def forget(self, session: Session) -> None:
        """Forget a session that is closed."""
        self._waiting.pop(session, None)

    def end(self) -> dict[Session, Arguments]:
        """End the pause. Return the sessions that waited, with their requests."""
        waiting, self._waiting = self._waiting, {}
        self.until, self.active, self.everything = inf, False, False
        return waiting
