"""Tracks what a connection has sent in one attempt, and decides whether it may be sent again.

Rule 1. A failed attempt is repeated only if it sent nothing, or only commands that may run twice
        (`repeatable`). Rejected credentials are never retried.
Rule 2. EXEC is repeatable together with its MULTI and all commands between them, never alone.
Rule 3. A connection with a WATCH or an open MULTI has state that a new connection lacks, so nothing is
        repeated on a new connection.
Rule 4. If a command that must not run twice may have run, the error says so. Any other error is unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

from redis.exceptions import AuthenticationError, AuthorizationError, BusyLoadingError

from headwater.client.repeatable import Command, command_name, is_repeatable, wait_seconds

Attempt = tuple[int, str, float, bool]
"""The state that `Sent` had for the enclosing attempt."""

_MAY_HAVE_RUN = "_headwater_may_have_run"

NEVER_AGAIN = (AuthenticationError, AuthorizationError)
"""Errors that repeating the attempt would raise again."""


class Sent:
    """The commands that one connection has sent since the current attempt began.

    >>> sent = Sent()
    >>> sent.note([("XREADGROUP", "GROUP", "g", "c", "BLOCK", 1500, "STREAMS", "orders", ">")])
    >>> sent.may_repeat, sent.unrepeatable, sent.wait
    (False, 'XREADGROUP', 1.5)
    """

    __slots__ = ("_held", "_queueing", "_watching", "announced", "count", "unrepeatable", "wait")

    def __init__(self) -> None:
        self.count = 0
        """Number of commands sent."""
        self.unrepeatable = ""
        """Name of the first command that must not run twice; empty if all may run twice."""
        self.wait = 0.0
        """Seconds that the commands may block, in total; infinity for no limit."""
        self._watching = self._queueing = False
        self._held = False
        self.announced: list[Command] | None = None
        """The commands whose bytes are sent next; None if they are unknown."""

    @property
    def may_repeat(self) -> bool:
        """True if everything sent in this attempt may be sent again."""
        return not self.unrepeatable and not self._held

    @property
    def only_one(self) -> bool:
        """True if this attempt sent a single command, on a connection without WATCH or MULTI."""
        return self.count == 1 and not self._held

    def begin(self) -> Attempt:
        """Begin an attempt. Return a value to pass to `end`. Attempts nest: connecting is an attempt
        within the attempt to send."""
        outer = (self.count, self.unrepeatable, self.wait, self._held)
        self.count, self.unrepeatable, self.wait = 0, "", 0.0
        self._held = self._watching or self._queueing
        return outer

    def end(self, outer: Attempt) -> None:
        """End the attempt for which `begin` returned ``outer``."""
        self.count, self.unrepeatable, self.wait, self._held = outer

    def note(self, commands: Sequence[Command] | None) -> None:
        """Note that these commands may have run; None for bytes whose commands are unknown."""
        if commands is None:
            self.count += 2  # an unknown number: not "only one"
            self.unrepeatable = self.unrepeatable or "a command"
            return
        self.count += len(commands)
        began = False
        for command in commands:
            name = command_name(command)
            if name == "EXEC":
                repeatable = began
            else:
                began = began or name == "MULTI"
                repeatable = is_repeatable(command)
            if not repeatable and not self.unrepeatable:
                self.unrepeatable = name
            self._follow(name)
            self.wait += wait_seconds(command)

    def disconnected(self) -> None:
        """Forget WATCH and MULTI, because the server's session has ended."""
        self._watching = self._queueing = False

    def _follow(self, name: str) -> None:
        if name == "WATCH":
            self._watching = True
        elif name == "MULTI":
            self._queueing = True
        elif name in {"EXEC", "DISCARD", "RESET"}:
            self._watching = self._queueing = False
        elif name == "UNWATCH":
            self._watching = False


def may_try_again(sent: Sent, error: Exception) -> bool:
    """Return whether the attempt that ended with ``error`` may be repeated."""
    if isinstance(error, NEVER_AGAIN):
        return False
    # A server that replies LOADING has not run the command.
    return sent.may_repeat or (isinstance(error, BusyLoadingError) and sent.only_one)


def explain(sent: Sent, error: Exception) -> None:
    """If a command that must not run twice may have run, say so in the message of ``error``."""
    if sent.unrepeatable and not isinstance(error, NEVER_AGAIN):
        what = str(error).rstrip(". ")
        error.args = (
            f"{what}. {sent.unrepeatable} had been sent and may have run, so it was not sent again",
            *error.args[1:],
        )
        say_may_have_run(error)


def say_may_have_run(error: Exception) -> None:
    """Mark ``error`` so that `may_have_run` returns true for it."""
    setattr(error, _MAY_HAVE_RUN, True)


def may_have_run(error: Exception) -> bool:
    """Return whether ``error`` is marked because a command was sent that must not be repeated.

    False means that nothing was sent, or only commands that may run twice.
    """
    return getattr(error, _MAY_HAVE_RUN, False)
