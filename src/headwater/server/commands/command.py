"""COMMAND and its subcommands, except COMMAND DOCS (command_docs.py): the command table for clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.commands.call import SYNTAX, Call
from headwater.commands.globs import matches
from headwater.commands.help import write_help
from headwater.commands.key_specs import FoundKey, KeyRange, KeySpec, find_keys
from headwater.commands.table import BY_FULL_NAME, COMMANDS, Command, every_command
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter

if TYPE_CHECKING:
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session


def command(call: Call, session: Session, services: Services) -> None:
    """COMMAND: every command."""
    call.reply.array(len(COMMANDS))
    for one in COMMANDS.values():
        _write_command(call.reply, one)


def command_count(call: Call, session: Session, services: Services) -> None:
    """COMMAND COUNT: the number of commands, without subcommands."""
    call.reply.integer(len(COMMANDS))


def command_info(call: Call, session: Session, services: Services) -> None:
    """COMMAND INFO [name …]: the named commands; nil for an unknown name."""
    if call.arguments.count == 2:
        command(call, session, services)
        return
    names = call.arguments.values(2)
    call.reply.array(len(names))
    for name in names:
        one = find_named(name)
        if one is None:
            call.reply.nil()
        else:
            _write_command(call.reply, one)


def command_list(call: Call, session: Session, services: Services) -> None:
    """COMMAND LIST [FILTERBY MODULE|ACLCAT|PATTERN value]: names of commands and subcommands."""
    arguments = call.arguments
    if arguments.count == 2:
        call.reply.bulks([one.name.encode() for one in every_command()])
        return
    if arguments.count != 5 or arguments.token(2) != b"FILTERBY":
        raise CommandError(SYNTAX)
    kind, value = arguments.token(3), arguments.bytes(4).lower()
    if kind == b"MODULE":
        names: list[bytes] = []
    elif kind == b"ACLCAT":
        category = value.decode("utf-8", "surrogateescape")
        names = [one.name.encode() for one in every_command() if category in one.categories]
    elif kind == b"PATTERN":
        names = [one.name.encode() for one in every_command() if matches(value, one.name.encode())]
    else:
        raise CommandError(SYNTAX)
    call.reply.bulks(names)


def command_getkeys(call: Call, session: Session, services: Services) -> None:
    """COMMAND GETKEYS command [argument …]: the keys of that request."""
    request, found = _keys_of(call)
    call.reply.bulks([request.bytes(key.position) for key in found])


def command_getkeysandflags(call: Call, session: Session, services: Services) -> None:
    """COMMAND GETKEYSANDFLAGS command [argument …]: the keys of that request, each with its flags."""
    request, found = _keys_of(call)
    call.reply.array(len(found))
    for key in found:
        call.reply.array(2)
        call.reply.bulk(request.bytes(key.position))
        _write_flags(call.reply, key.flags)


def command_help(call: Call, session: Session, services: Services) -> None:
    """COMMAND HELP."""
    write_help(
        call,
        b"COMMAND",
        {
            b"": "(no subcommand)",
            b"DOCS": "[<command-name> ...]",
            b"GETKEYS": "<full-command>",
            b"GETKEYSANDFLAGS": "<full-command>",
            b"INFO": "[<command-name> ...]",
            b"LIST": "[FILTERBY (MODULE <name> | ACLCAT <category> | PATTERN <pattern>)]",
        },
    )


def find_named(name: bytes) -> Command | None:
    """Return the command ``xadd`` or the subcommand ``xgroup|create``, in any case; None if unknown."""
    return BY_FULL_NAME.get(name.lower().decode("latin-1"))


def _keys_of(call: Call) -> tuple[Arguments, list[FoundKey]]:
    """Return the request in the arguments of COMMAND GETKEYS, and its keys. Raises `CommandError` if it is
    not a valid request or has no keys."""
    request = Arguments.of(*call.arguments.values(2))
    found = COMMANDS.get(request.token(0))
    if found is not None and found.subcommands and request.count > 1:
        found = found.subcommands.get(request.token(1))
    if found is None:
        raise CommandError("ERR Invalid command specified")
    if all("not_key" in spec.flags for spec in found.keys):
        raise CommandError("ERR The command has no key arguments")
    if not found.arity_fits(request.count):
        raise CommandError("ERR Invalid number of arguments specified for command")
    keys = find_keys(request, found.keys, found.finder)
    if not keys and "no_mandatory_keys" not in found.flags:
        raise CommandError("ERR Invalid arguments specified for command")
    return request, keys


def _write_command(reply: ReplyWriter, one: Command) -> None:
    """Write the ten elements of COMMAND INFO."""
    first, last, step = KeyRange.over(one.keys)
    reply.array(10)
    reply.bulk(one.name.encode())
    reply.integer(one.arity)
    _write_flags(reply, one.shown_flags)
    reply.integer(first)
    reply.integer(last)
    reply.integer(step)
    _write_flags(reply, [f"@{category}" for category in one.categories])
    reply.set(len(one.tips))
    for tip in one.tips:
        reply.bulk(tip.encode())
    reply.set(len(one.keys))
    for spec in one.keys:
        _write_spec(reply, spec)
    if one.subcommands:
        reply.array(len(one.subcommands))
    else:
        reply.set(0)
    for sub in one.subcommands.values():
        _write_command(reply, sub)


def _write_spec(reply: ReplyWriter, spec: KeySpec) -> None:
    reply.map(3)
    reply.bulk(b"flags")
    _write_flags(reply, spec.flags)
    reply.bulk(b"begin_search")
    reply.map(2)
    reply.bulk(b"type")
    reply.bulk(b"keyword" if spec.keyword else b"index")
    reply.bulk(b"spec")
    if spec.keyword:
        reply.map(2)
        reply.bulk(b"keyword")
        reply.bulk(spec.keyword.encode())
        reply.bulk(b"startfrom")
    else:
        reply.map(1)
        reply.bulk(b"index")
    reply.integer(spec.begin)
    reply.bulk(b"find_keys")
    reply.map(2)
    reply.bulk(b"type")
    reply.bulk(b"keynum" if spec.counted else b"range")
    reply.bulk(b"spec")
    reply.map(3)
    if spec.counted:
        found = ((b"keynumidx", 0), (b"firstkey", 1), (b"keystep", spec.step))
    else:
        found = ((b"lastkey", spec.last), (b"keystep", spec.step), (b"limit", spec.limit))
    for name, value in found:
        reply.bulk(name)
        reply.integer(value)


def _write_flags(reply: ReplyWriter, flags: Iterable[str]) -> None:
    """Write a set of simple strings."""
    listed = list(flags)
    reply.set(len(listed))
    for flag in listed:
        reply.simple(flag.encode())
