"""The interface through which EXEC, scripts and unblocked clients run commands.

`headwater.server.turn.execution` implements it. That module imports all commands, so commands
cannot import it.
"""

from __future__ import annotations

from headwater.commands.call import Wait
from headwater.commands.dispatch import KnownCommand
from headwater.commands.jobs import Job
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.server.session.session import Session
from headwater.server.session.transaction import TransactionQueue


class Runner:
    """Runs commands on behalf of other commands."""

    def run(
        self, session: Session, known: KnownCommand, arguments: Arguments, began: int
    ) -> Wait | Job | None:
        """Run a command that was found, and record statistics. The command began at ``began`` (monotonic ns).
        Raises `CommandError`."""
        raise NotImplementedError

    def rejected(self, arguments: Arguments, error: CommandError) -> None:
        """Record that a command of a script was rejected before it ran."""
        raise NotImplementedError

    def check(self, session: Session, known: KnownCommand, arguments: Arguments) -> None:
        """Check the permissions of the session's user. Raises `CommandError` (NOPERM)."""
        raise NotImplementedError

    def check_role(self, session: Session, known: KnownCommand) -> None:
        """Check that the node's role permits a command. Raises `CommandError` (READONLY, NOREPLICAS, …)."""
        raise NotImplementedError

    def run_queued(self, session: Session, queue: TransactionQueue) -> None:
        """Run the commands of a transaction. An error is the reply of its own command only."""
        raise NotImplementedError

    def run_again(self, session: Session, arguments: Arguments) -> Wait | None:
        """Run the command of a blocked client again, if its user still has the permission. Raises
        `CommandError`."""
        raise NotImplementedError
