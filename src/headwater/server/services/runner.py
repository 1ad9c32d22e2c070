"""Running a command from within another one, or again: what EXEC, scripts and woken clients ask for.

`headwater.server.turn.execution` implements it. It imports every command, so commands cannot import it.
"""

from __future__ import annotations

from headwater.commands.call import Wait
from headwater.commands.dispatch import KnownCommand
from headwater.commands.jobs import Job
from headwater.resp.arguments import Arguments
from headwater.server.session.session import Session
from headwater.server.session.transaction import TransactionQueue


class Runner:
    """The interface."""

    def run(
        self, session: Session, known: KnownCommand, arguments: Arguments, began: int
    ) -> Wait | Job | None:
        """Call the function of a command that was found, and count it; raises `CommandError`. It has
        begun at ``began`` (monotonic ns)."""
        raise NotImplementedError

    def check(self, session: Session, known: KnownCommand, arguments: Arguments) -> None:
        """Refuse what the session's user may not do; raises `CommandError` (NOPERM)."""
        raise NotImplementedError

    def run_queued(self, session: Session, queue: TransactionQueue) -> None:
        """Run the commands of a transaction, each with its reply or its error in its place."""
        raise NotImplementedError

    def run_again(self, session: Session, arguments: Arguments) -> Wait | None:
        """Run the command of a client that was blocked, if its user may still run it; raises
        `CommandError`."""
        raise NotImplementedError
