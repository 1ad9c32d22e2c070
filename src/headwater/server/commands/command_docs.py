"""COMMAND DOCS: the summary and the arguments of commands, for people and redis-cli."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.commands.call import Call
from headwater.commands.syntax import Argument, parse_syntax
from headwater.commands.table import COMMANDS, Command
from headwater.resp.replies import ReplyWriter
from headwater.server.commands.command import find_named

if TYPE_CHECKING:
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session


def command_docs(call: Call, session: Session, services: Services) -> None:
    """COMMAND DOCS [name …]: unknown names are left out."""
    commands: Iterable[Command] = COMMANDS.values()
    if call.arguments.count > 2:
        named = map(find_named, call.arguments.values(2))
        commands = [command for command in named if command is not None]
    _write_commands(call.reply, list(commands))


def _write_commands(reply: ReplyWriter, commands: list[Command]) -> None:
    """Write a map from each command's name to its documentation."""
    reply.map(len(commands))
    for command in commands:
        arguments = parse_syntax(command.syntax)
        texts = (("summary", command.summary), ("since", command.since), ("group", command.group))
        reply.bulk(command.name.encode())
        reply.map(3 + bool(arguments) + bool(command.subcommands))
        for name, value in texts:
            reply.bulk(name.encode())
            reply.bulk(value.encode())
        if arguments:
            reply.bulk(b"arguments")
            _ArgumentWriter(reply, len(command.keys)).write_all(arguments)
        if command.subcommands:
            reply.bulk(b"subcommands")
            _write_commands(reply, list(command.subcommands.values()))


class _ArgumentWriter:
    """Writes the arguments of one command; its keys refer to its key specifications in order."""

    def __init__(self, reply: ReplyWriter, specs: int) -> None:
        self._reply = reply
        self._specs = specs
        self._next_spec = 0

    def write_all(self, arguments: Iterable[Argument]) -> None:
        listed = list(arguments)
        self._reply.array(len(listed))
        for argument in listed:
            self._write(argument)

    def _write(self, argument: Argument) -> None:
        reply = self._reply
        texts = {"name": argument.name, "type": argument.kind}
        if not argument.parts:
            texts["display_text"] = argument.name
        if argument.token:
            texts["token"] = argument.token
        flags = [flag for flag in ("optional", "multiple", "multiple_token") if _is(argument, flag)]
        has_spec = argument.kind == "key" and self._specs > 0
        reply.map(len(texts) + has_spec + bool(flags) + bool(argument.parts))
        for name, text in texts.items():
            reply.bulk(name.encode())
            reply.bulk(text.encode())
        if has_spec:
            reply.bulk(b"key_spec_index")
            reply.integer(min(self._next_spec, self._specs - 1))
            self._next_spec += 1
        if flags:
            reply.bulk(b"flags")
            reply.set(len(flags))
            for flag in flags:
                reply.simple(flag.encode())
        if argument.parts:
            reply.bulk(b"arguments")
            self.write_all(argument.parts)


def _is(argument: Argument, flag: str) -> bool:
    return bool(getattr(argument, flag))
