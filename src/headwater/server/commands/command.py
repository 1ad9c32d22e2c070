"""COMMAND: the command table, as clients and people ask for it; COMMAND DOCS stands in `docs`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headwater.commands.call import SYNTAX, Call
from headwater.commands.globs import matches
from headwater.commands.help import write_help
from headwater.commands.key_specs import FoundKey, KeyRange, KeySpec, find_keys
from headwater.commands.table import COMMANDS, CommandRow
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter

if TYPE_CHECKING:
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session


def command(call: Call, session: Session, services: Services) -> None:
    """COMMAND: every row."""
    call.reply.array(len(COMMANDS))
    for row in COMMANDS.values():
        _write_row(call.reply, row)


def command_count(call: Call, session: Session, services: Services) -> None:
    """COMMAND COUNT: how many there are, subcommands not counted."""
    call.reply.integer(len(COMMANDS))


def command_info(call: Call, session: Session, services: Services) -> None:
    """COMMAND INFO [name …]: the rows of these, nil for a name that there is not."""
    if call.arguments.count == 2:
        command(call, session, services)
        return
    names = call.arguments.values(2)
    call.reply.array(len(names))
    for name in names:
        row = find_named(name)
        if row is None:
            call.reply.nil()
        else:
            _write_row(call.reply, row)


def command_list(call: Call, session: Session, services: Services) -> None:
    """COMMAND LIST [FILTERBY MODULE|ACLCAT|PATTERN value]: names."""
    arguments = call.arguments
    if arguments.count == 2:
        call.reply.bulks([row.name.encode() for row in COMMANDS.values()])
        return
    if arguments.count != 5 or arguments.token(2) != b"FILTERBY":
        raise CommandError(SYNTAX)
    kind, value = arguments.token(3), arguments.bytes(4).lower()
    if kind == b"MODULE":
        names: list[bytes] = []
    elif kind == b"ACLCAT":
        category = value.decode("utf-8", "surrogateescape")
        names = [row.name.encode() for row in _everything() if category in row.categories]
    elif kind == b"PATTERN":
        names = [row.name.encode() for row in _everything() if matches(value, row.name.encode())]
    else:
        raise CommandError(SYNTAX)
    call.reply.bulks(names)


def command_getkeys(call: Call, session: Session, services: Services) -> None:
    """COMMAND GETKEYS command [argument …]: the keys of that request."""
    request, found = _keys_of(call)
    call.reply.bulks([request.bytes(key.position) for key in found])


def command_getkeysandflags(call: Call, session: Session, services: Services) -> None:
    """COMMAND GETKEYSANDFLAGS command [argument …]: its keys, and how each is used."""
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


def find_named(name: bytes) -> CommandRow | None:
    """The row of ``xadd`` or ``xgroup|create``, in any case."""
    container, bar, word = name.upper().partition(b"|")
    row = COMMANDS.get(container)
    return row.subcommands.get(word) if bar and row is not None else row


def _everything() -> Iterator[CommandRow]:
    for row in COMMANDS.values():
        yield row
        yield from row.subcommands.values()


def _keys_of(call: Call) -> tuple[Arguments, list[FoundKey]]:
    """The request behind COMMAND GETKEYS and its keys; `CommandError` when it is none or has none."""
    request = Arguments.of(*call.arguments.values(2))
    row = COMMANDS.get(request.token(0))
    if row is not None and row.subcommands and request.count > 1:
        row = row.subcommands.get(request.token(1))
    if row is None:
        raise CommandError("ERR Invalid command specified")
    if all("not_key" in spec.flags for spec in row.keys):
        raise CommandError("ERR The command has no key arguments")
    if not row.arity_fits(request.count):
        raise CommandError("ERR Invalid number of arguments specified for command")
    found = find_keys(request, row.keys, row.finder)
    if not found:
        raise CommandError("ERR Invalid arguments specified for command")
    return request, found


def _write_row(reply: ReplyWriter, row: CommandRow) -> None:
    """The ten elements of COMMAND INFO."""
    first, last, step = KeyRange.over(row.keys)
    reply.array(10)
    reply.bulk(row.name.encode())
    reply.integer(row.arity)
    _write_flags(reply, [*row.flags, *(["movablekeys"] if row.movable_keys else [])])
    reply.integer(first)
    reply.integer(last)
    reply.integer(step)
    _write_flags(reply, [f"@{category}" for category in row.categories])
    reply.set(len(row.tips))
    for tip in row.tips:
        reply.bulk(tip.encode())
    reply.set(len(row.keys))
    for spec in row.keys:
        _write_spec(reply, spec)
    if row.subcommands:
        reply.array(len(row.subcommands))
    else:
        reply.set(0)
    for sub in row.subcommands.values():
        _write_row(reply, sub)


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
    """A set of simple strings."""
    listed = list(flags)
    reply.set(len(listed))
    for flag in listed:
        reply.simple(flag.encode())
