"""A run of a script, and redis.call: checks, the command, its reply as a Lua value.

Rule 1. A script is one command: its inner commands run without interruption, in one record group, at one time.
Rule 2. The inner commands run as the client's user, in a database that the script may select for itself.
Rule 3. An inner command that fails changes nothing. Earlier writes of the script remain, as in
        Redis. This also applies if the journal has no room for the inner command, or if the script
        is stopped.
"""

from __future__ import annotations

from typing import Any

from headwater.commands.dispatch import KnownCommand, find_command
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.server.services.acl import permissions
from headwater.server.services.acl.authorization import Authorization
from headwater.server.services.memory_use import OOM, MemoryUse
from headwater.server.services.observability.observer import CountedError
from headwater.server.services.runner import Runner
from headwater.server.services.scripting.cache import CachedScript
from headwater.server.services.scripting.interpreter import TIMEOUT, Interpreter, Problem
from headwater.server.services.scripting.values import (
    ScriptFailed,
    number_text,
    reply_words,
    write_word,
    write_words,
)
from headwater.server.session.session import Session

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # compiled modules use clock.pxd
    from time import monotonic_ns as passed_ns

_VALUE_BYTES = 64
"""Memory in Lua of each line of a reply, in addition to its text."""

_NOTHING = bytearray()
"""The output buffer between commands, into which nothing is written."""

_SMALL_BYTES = 512
"""Maximum size of a reply, in bytes, for which no room is made: so small a reply always fits (interpreter.py)."""


class ScriptRun:
    """One run of a script for a session, limited to ``seconds``."""

    def __init__(
        self,
        session: Session,
        script: CachedScript,
        interpreter: Interpreter,
        runner: Runner,
        authorization: Authorization,
        memory: MemoryUse,
        *,
        read_only: bool,
        seconds: float,
    ) -> None:
        self._runner = runner
        self._authorization = authorization
        # As in Redis, the limit does not stop a script that has begun to write.
        self._is_bounded = memory.limit > 0 and memory.was_exceeded and not script.ignores_limit
        self._seconds = seconds
        self._session = session
        self._script = script
        self._read_only = read_only or script.read_only
        self._resp = 2
        self._interpreter = interpreter
        self._arguments = self._interpreter.arguments

    def answer(self, words: tuple[bytes, ...], key_count: int) -> list[CommandError]:
        """Run the script with ``words``, of which the first ``key_count`` are keys, and write its reply. Return the
        errors in the reply. Raises `CommandError` if an error ended the script."""
        call, interpreter = self._session.call, self._interpreter
        arguments, db, may_block = call.arguments, call.db, call.may_block
        call.may_block = False
        interpreter.current = self
        try:
            value = interpreter.run(self._script.function, words, key_count, self._seconds)
        finally:
            interpreter.current = None
            call.arguments, call.db, call.may_block = arguments, db, may_block
        if isinstance(value, Problem):
            raise (CountedError if value.counted else CommandError)(self._told(value))
        if isinstance(value, list | tuple):
            return write_words(call.reply, value, says_false=self._resp == 3)
        write_word(call.reply, value, says_false=self._resp == 3)
        return []

    def _told(self, problem: Problem) -> str:
        where = f", on @user_script:{problem.line}" if problem.line is not None else ""
        text = problem.text.decode("utf-8", "surrogateescape")
        return f"{text} script: {self._script.sha.decode()}{where}."

    def set_resp(self, version: int) -> None:
        """Implement redis.setresp."""
        self._resp = version

    def call(self, values: tuple[Any, ...]) -> Any:
        """Implement redis.call. Raises `ScriptFailed` with the text of the error."""
        arguments = self._arguments
        arguments.encode(_words(values))
        call, answer = self._session.call, bytearray()
        reply, inner = call.reply, self._interpreter.reply
        inner.out, inner.resp = answer, self._resp
        call.reply = inner
        try:
            began = passed_ns()
            if began > self._interpreter.deadline_ns:
                raise ScriptFailed(TIMEOUT)
            try:
                known = _found(arguments)
                self._check(known, arguments)
            except CommandError as error:
                self._runner.rejected(arguments, error)
                raise
            if self._runner.run(self._session, known, arguments, began) is not None:
                inner.nil_array()
            call.admitted = False  # its changes are complete (rule 3)
        except CommandError as error:
            text = str(error).encode("utf-8", "surrogateescape")
            raise ScriptFailed(text, counted=True) from None
        finally:
            call.reply, inner.out = reply, _NOTHING
        if len(answer) > _SMALL_BYTES:
            self._interpreter.make_room(len(answer) + _VALUE_BYTES * answer.count(b"\n"))
        return reply_words(answer)

    def _check(self, known: KnownCommand, arguments: Arguments) -> None:
        """Check that the script may run a command. Raises `CommandError`."""
        row = known.command
        if "noscript" in row.flags:
            raise CommandError("ERR This Redis command is not allowed from script")
        if self._read_only and row.may_change:
            raise CommandError("ERR Write commands are not allowed from read-only scripts.")
        if not self._session.user.unrestricted:
            try:
                self._authorization.check(self._session, row, arguments, context="lua")
            except CommandError as error:
                reason = str(error).partition(" ")[2]
                raise CommandError(f"ERR ACL failure in script: {reason}") from None
        if self._is_bounded:
            if known.takes_memory(arguments):
                raise CommandError(OOM)
            self._is_bounded = not row.writes
        if row.writes:
            self._runner.check_role(self._session, known)

    def may_run(self, values: tuple[Any, ...]) -> bool:
        """Implement redis.acl_check_cmd."""
        arguments = Arguments.of(*_words(values))
        try:
            row = find_command(arguments).command
        except CommandError:
            raise ScriptFailed(b"ERR Invalid command passed to redis.acl_check_cmd()") from None
        user = self._session.user
        return user.unrestricted or permissions.denial(user, row, arguments) is None


def _found(arguments: Arguments) -> KnownCommand:
    """Find the command of a call. Raises `CommandError` with Redis's text for scripts."""
    try:
        return find_command(arguments)
    except CommandError as error:
        if "wrong number of arguments" in str(error):
            text = "ERR Wrong number of args calling Redis command from script"
        else:
            text = "ERR Unknown Redis command called from script"
        raise CommandError(text) from None


def _words(values: tuple[Any, ...]) -> list[bytes]:
    """Convert Lua values to the arguments of a command."""
    if not values:
        raise ScriptFailed(b"ERR Please specify at least one argument for this redis lib call")
    words = []
    for value in values:
        if isinstance(value, bytes):
            words.append(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            whole = isinstance(value, int) and value > -(2**63)
            words.append(b"%d" % value if whole else number_text(value))
        else:
            raise ScriptFailed(b"ERR Lua redis lib command arguments must be strings or integers")
    return words
