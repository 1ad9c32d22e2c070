"""What a connection has sent in one attempt, and whether it may be sent again.

Rule 1. What failed is tried again only when nothing that was sent in the failed attempt could do
        harm by running twice (`repeatable`), or nothing was sent at all. Refused credentials are
        never tried again.
Rule 2. EXEC is repeatable with its MULTI and all commands between them, never alone.
Rule 3. A connection that holds a WATCH or an open MULTI holds what no other connection does:
        nothing is repeated on a new one.
Rule 4. An error says when a command may have run; it is redis-py's own error otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from redis.exceptions import AuthenticationError, AuthorizationError, BusyLoadingError

from headwater.client.repeatable import Command, command_name, is_repeatable, wait_seconds

Attempt = tuple[int, str, float, bool]
"""What `Sent` knew of the attempt around the one that begins."""

_MAY_HAVE_RUN = "_headwater_may_have_run"

NEVER_AGAIN = (AuthenticationError, AuthorizationError)
"""Errors that the same attempt would meet again."""


class Sent:
    """What one connection has sent since the attempt under way began.

    >>> sent = Sent()
    >>> sent.note([("XREADGROUP", "GROUP", "g", "c", "BLOCK", 1500, "STREAMS", "orders", ">")])
    >>> sent.may_repeat, sent.unrepeatable, sent.wait
    (False, 'XREADGROUP', 1.5)
    """

    __slots__ = ("_held", "_queueing", "_watching", "announced", "count", "unrepeatable", "wait")

    def __init__(self) -> None:
        self.count = 0
        """How many commands were sent."""
        self.unrepeatable = ""
        """Name of the first command that must not run twice; empty while there is none."""
        self.wait = 0.0
        """Seconds that the commands asked to wait, together; infinity for ever."""
        self._watching = self._queueing = False
        self._held = False
        self.announced: list[Command] | None = None
        """The commands whose bytes are sent next; None when nobody knows them."""

    @property
    def may_repeat(self) -> bool:
        """Whether all that was sent in this attempt may be sent again."""
        return not self.unrepeatable and not self._held

    @property
    def only_one(self) -> bool:
        """Whether this attempt sent a single command, on a connection that held nothing."""
        return self.count == 1 and not self._held

    def begin(self) -> Attempt:
        """A new attempt; what is returned goes to `end` when it is over. Attempts nest: a
        connection is made within the attempt to send."""
        outer = (self.count, self.unrepeatable, self.wait, self._held)
        self.count, self.unrepeatable, self.wait = 0, "", 0.0
        self._held = self._watching or self._queueing
        return outer

    def end(self, outer: Attempt) -> None:
        """The attempt that `begin` began is over."""
        self.count, self.unrepeatable, self.wait, self._held = outer

    def note(self, commands: Sequence[Command] | None) -> None:
        """From now on these may have run; None for bytes that nobody knows the commands of."""
        if commands is None:
            self.count += 2  # at least one, and who knows
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

    def answer_seconds(self, socket_timeout: float) -> float | None:
        """How long the answer may take when a command asked to wait; None is for ever."""
        return None if self.wait == inf else self.wait + socket_timeout

    def disconnected(self) -> None:
        """The session is gone, and with it what it held."""
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
    """Whether the attempt that ended with ``error`` may be made once more."""
    if isinstance(error, NEVER_AGAIN):
        return False
    # LOADING is the answer of a server that has not run the command.
    return sent.may_repeat or (isinstance(error, BusyLoadingError) and sent.only_one)


def explain(sent: Sent, error: Exception) -> None:
    """Say in ``error`` that a command was sent and may have run."""
    if sent.unrepeatable and not isinstance(error, NEVER_AGAIN):
        what = str(error).rstrip(". ")
        error.args = (
            f"{what}. {sent.unrepeatable} had been sent and may have run, so it was not sent again",
            *error.args[1:],
        )
        say_may_have_run(error)


def say_may_have_run(error: Exception) -> None:
    """Have `may_have_run` say so of ``error``."""
    setattr(error, _MAY_HAVE_RUN, True)


def may_have_run(error: Exception) -> bool:
    """Whether `explain` has said of ``error`` that a command was sent that must not be repeated.

    False means that nothing was sent, or nothing that running twice would harm.
    """
    return getattr(error, _MAY_HAVE_RUN, False)
