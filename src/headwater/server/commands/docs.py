"""COMMAND DOCS: what commands are for and what they take, as people and redis-cli ask for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.commands.call import Call
from headwater.commands.syntax import Argument, parse_syntax
from headwater.commands.table import COMMANDS, CommandRow
from headwater.commands.table.syntax import SYNTAX
from headwater.resp.replies import ReplyWriter
from headwater.server.commands.command import find_named

if TYPE_CHECKING:
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session


def command_docs(call: Call, session: Session, services: Services) -> None:
    """COMMAND DOCS [name …]: names that there are not are left out."""
    rows: Iterable[CommandRow] = COMMANDS.values()
    if call.arguments.count > 2:
        rows = [row for name in call.arguments.values(2) if (row := find_named(name)) is not None]
    _write_rows(call.reply, list(rows))


def _write_rows(reply: ReplyWriter, rows: list[CommandRow]) -> None:
    """A map from names to what is known of each."""
    reply.map(len(rows))
    for row in rows:
        arguments = parse_syntax(SYNTAX.get(row.name, ""))
        reply.bulk(row.name.encode())
        reply.map(3 + bool(arguments) + bool(row.subcommands))
        for name, value in (("summary", row.summary), ("since", row.since), ("group", row.group)):
            reply.bulk(name.encode())
            reply.bulk(value.encode())
        if arguments:
            reply.bulk(b"arguments")
            _ArgumentWriter(reply, len(row.keys)).write_all(arguments)
        if row.subcommands:
            reply.bulk(b"subcommands")
            _write_rows(reply, list(row.subcommands.values()))


class _ArgumentWriter:
    """The arguments of one command; keys belong to its key specifications in order."""

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
