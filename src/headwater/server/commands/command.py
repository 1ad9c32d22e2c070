"""COMMAND and its subcommands: the command table for clients and people."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.commands.call import SYNTAX, Call
from headwater.commands.globs import matches
from headwater.commands.key_specs import FoundKey, KeyRange, KeySpec, find_keys
from headwater.commands.syntax import Argument, parse_syntax
from headwater.commands.table import BY_FULL_NAME, COMMANDS, Command, every_command
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.resp.replies import Members, Status
from headwater.server.services.services import Services
from headwater.server.session.session import Session

_FLAGS = ("optional", "multiple", "multiple_token")


def command(call: Call, session: Session, services: Services) -> None:
    """COMMAND: every command."""
    call.reply.value([_described(one) for one in COMMANDS.values()])


def command_count(call: Call, session: Session, services: Services) -> None:
    """COMMAND COUNT: the number of commands, without subcommands."""
    call.reply.integer(len(COMMANDS))


def command_info(call: Call, session: Session, services: Services) -> None:
    """COMMAND INFO [name …]: the named commands; nil for an unknown name."""
    if call.arguments.count == 2:
        command(call, session, services)
        return
    named = map(_find_named, call.arguments.values(2))
    call.reply.value([None if one is None else _described(one) for one in named])


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


def command_docs(call: Call, session: Session, services: Services) -> None:
    """COMMAND DOCS [name …]: unknown names are left out."""
    commands = list(COMMANDS.values())
    if call.arguments.count > 2:
        named = map(_find_named, call.arguments.values(2))
        commands = [one for one in named if one is not None]
    call.reply.map(len(commands))
    for one in commands:  # a name that is given twice occurs twice
        call.reply.pairs({one.name: _documented(one)})


def command_getkeys(call: Call, session: Session, services: Services) -> None:
    """COMMAND GETKEYS command [argument …]: the keys of that request."""
    request, found = _keys_of(call)
    call.reply.bulks([request.bytes(key.position) for key in found])


def command_getkeysandflags(call: Call, session: Session, services: Services) -> None:
    """COMMAND GETKEYSANDFLAGS command [argument …]: the keys of that request, each with its flags."""
    request, found = _keys_of(call)
    call.reply.value([(request.bytes(key.position), _statuses(key.flags)) for key in found])


def _find_named(name: bytes) -> Command | None:
    """Return a command (``xadd``) or subcommand (``xgroup|create``) by name, ignoring case; None if unknown."""
    return BY_FULL_NAME.get(name.lower().decode("latin-1"))


def _keys_of(call: Call) -> tuple[Arguments, list[FoundKey]]:
    """Return the request in the arguments of COMMAND GETKEYS, and its keys. Raises `CommandError` if the
    request is invalid or its command does not take keys."""
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


def _described(one: Command) -> list[object]:
    """Return the ten elements of COMMAND INFO."""
    first, last, step = KeyRange.over(one.keys)
    return [
        one.name,
        one.arity,
        _statuses(one.shown_flags),
        first,
        last,
        step,
        _statuses(f"@{category}" for category in one.categories),
        Members(one.tips),
        Members(map(_described_keys, one.keys)),
        list(map(_described, one.subcommands.values())) or Members(),
    ]


def _described_keys(spec: KeySpec) -> dict[str, object]:
    index: dict[str, object] = {"index": spec.begin}
    keyword: dict[str, object] = {"keyword": spec.keyword, "startfrom": spec.begin}
    counted = {"keynumidx": 0, "firstkey": 1, "keystep": spec.step}
    ranged = {"lastkey": spec.last, "keystep": spec.step, "limit": spec.limit}
    return {
        "flags": _statuses(spec.flags),
        "begin_search": {"type": "keyword", "spec": keyword}
        if spec.keyword
        else {"type": "index", "spec": index},
        "find_keys": {"type": "keynum", "spec": counted}
        if spec.counted
        else {"type": "range", "spec": ranged},
    }


def _statuses(words: Iterable[str]) -> Members:
    """Return a set of simple strings."""
    return Members(map(Status, words))


def _documented(one: Command) -> dict[str, object]:
    found: dict[str, object] = {
        "summary": one.summary,
        "since": one.since,
        "group": one.group,
    }
    arguments = parse_syntax(one.syntax)
    if arguments:
        found["arguments"] = _Arguments(len(one.keys)).described(arguments)
    if one.subcommands:
        found["subcommands"] = {sub.name: _documented(sub) for sub in one.subcommands.values()}
    return found


class _Arguments:
    """Describes the arguments of one command. Those that are keys refer to its key specifications in order."""

    def __init__(self, specs: int) -> None:
        self._specs = specs
        self._next_spec = 0

    def described(self, arguments: Iterable[Argument]) -> list[object]:
        return [self._one(argument) for argument in arguments]

    def _one(self, argument: Argument) -> dict[str, object]:
        found: dict[str, object] = {"name": argument.name, "type": argument.kind}
        if not argument.parts:
            found["display_text"] = argument.name
        if argument.token:
            found["token"] = argument.token
        if argument.kind == "key" and self._specs > 0:
            found["key_spec_index"] = min(self._next_spec, self._specs - 1)
            self._next_spec += 1
        flags = [flag for flag in _FLAGS if getattr(argument, flag)]
        if flags:
            found["flags"] = _statuses(flags)
        if argument.parts:
            found["arguments"] = self.described(argument.parts)
        return found
