"""What redis.call does: the gates of a command, the command, its reply as a Lua value.

Rule 1. A script is one command: its inner commands run at once, in one record group, at one time.
Rule 2. They run as the client's user, in a database that the script may choose for itself.
Rule 3. An inner command that fails changes nothing; what the script wrote before it stands, as in
        Redis. That holds for one that the journal had no room for and for a script that is ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.commands.dispatch import find_row
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter
from headwater.server.acl import permissions
from headwater.server.scripting.cache import Script
from headwater.server.scripting.interpreter import Problem
from headwater.server.scripting.values import ReplyDecoder, ReplyEncoder, ScriptFailed

if TYPE_CHECKING:
    from headwater.server.node import Node
    from headwater.server.session import Session


_VALUE_BYTES = 64
"""What each line of a reply takes in Lua beside its text."""


class Run:
    """One run of one script for one session."""

    def __init__(self, node: Node, session: Session, script: Script, *, read_only: bool) -> None:
        self._node = node
        self._session = session
        self._script = script
        self._read_only = read_only or script.read_only
        self._resp = 2

    def answer(self, keys: Sequence[bytes], argv: Sequence[bytes]) -> None:
        """Run the script and write its reply. Raises `CommandError` with what ended it."""
        call, interpreter = self._session.call, self._node.scripts.interpreter
        arguments, db, may_block = call.arguments, call.db, call.may_block
        call.may_block = False
        interpreter.call, interpreter.setresp = self._call, self._set_resp
        interpreter.may_run = self._may_run
        try:
            seconds = self._node.config.lua_time_limit / 1000
            value = interpreter.run(self._script.function, keys, argv, seconds=seconds)
        finally:
            call.arguments, call.db, call.may_block = arguments, db, may_block
        if isinstance(value, Problem):
            raise CommandError(self._told(value))
        ReplyEncoder(
            call.reply, interpreter.kind, expired=interpreter.expired, chosen_resp=self._resp
        ).write(value)

    def _told(self, problem: Problem) -> str:
        where = f", on @user_script:{problem.line}" if problem.line is not None else ""
        text = problem.text.decode("utf-8", "surrogateescape")
        return f"{text} script: {self._script.sha.decode()}{where}."

    def _set_resp(self, version: int) -> None:
        self._resp = version

    def _call(self, values: Sequence[Any]) -> Any:
        """One redis.call. Raises `ScriptFailed` with the text of its error."""
        from headwater.server.execution import invoke  # which imports every command

        arguments = _arguments(values)
        session, call, answer = self._session, self._session.call, bytearray()
        reply, call.reply = call.reply, ReplyWriter(answer, self._resp)
        try:
            self._check(arguments)
            if invoke(self._node, session, arguments) is not None:
                call.reply.nil_array()
        except CommandError as error:
            raise ScriptFailed(str(error).encode("utf-8", "surrogateescape")) from None
        finally:
            call.reply = reply
        interpreter = self._node.scripts.interpreter
        if len(answer) + _VALUE_BYTES * answer.count(b"\n") > interpreter.room:
            raise ScriptFailed(b"ERR not enough memory for the command's reply")
        return ReplyDecoder(interpreter.table, answer).value()

    def _check(self, arguments: Arguments) -> None:
        """Refuse what a script may not have. Raises `CommandError`."""
        try:
            _, row = find_row(arguments)
        except CommandError as error:
            if "wrong number of arguments" in str(error):
                text = "ERR Wrong number of args calling Redis command from script"
            else:
                text = "ERR Unknown Redis command called from script"
            raise CommandError(text) from None
        if "noscript" in row.flags:
            raise CommandError("ERR This Redis command is not allowed from script")
        if self._read_only and row.writes:
            raise CommandError("ERR Write commands are not allowed from read-only scripts.")
        if not self._session.user.unrestricted:
            try:
                permissions.check(self._session, row, arguments, context="lua")
            except CommandError as error:
                reason = str(error).partition(" ")[2]
                raise CommandError(f"NOPERM ACL failure in script: {reason}") from None

    def _may_run(self, values: Sequence[Any]) -> bool:
        """redis.acl_check_cmd."""
        arguments = _arguments(values)
        try:
            _, row = find_row(arguments)
        except CommandError:
            raise ScriptFailed(b"ERR Invalid command passed to redis.acl_check_cmd()") from None
        user = self._session.user
        return user.unrestricted or permissions.denial(user, row, arguments) is None


def _arguments(values: Sequence[Any]) -> Arguments:
    if not values:
        raise ScriptFailed(b"ERR Please specify at least one argument for this redis lib call")
    words = []
    for value in values:
        if isinstance(value, bytes):
            words.append(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            whole = isinstance(value, int) or (abs(value) < 2**63 and value == int(value))
            words.append(b"%d" % int(value) if whole else b"%.17g" % value)
        else:
            raise ScriptFailed(b"ERR Lua redis lib command arguments must be strings or integers")
    return Arguments.of(*words)
