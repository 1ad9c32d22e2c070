"""Valid requests of each command, generated from its syntax: the minimal one, one per option, one with all
options, and one per alternative. Tests then modify them.

    >>> usages(b"XLEN")
    [(b'XLEN', b's')]
    >>> usages(b"XAUTOCLAIM")[1:]
    [(b'XAUTOCLAIM', b's', b'g', b'a', b'0', b'-', b'COUNT', b'2'), \
(b'XAUTOCLAIM', b's', b'g', b'a', b'0', b'-', b'JUSTID'), \
(b'XAUTOCLAIM', b's', b'g', b'a', b'0', b'-', b'COUNT', b'2', b'JUSTID')]
"""

from __future__ import annotations

from functools import cache

from headwater.commands.syntax import Argument, parse_syntax
from headwater.commands.table import BY_FULL_NAME, COMMANDS

TWICE = 2
"""How often a repeatable argument is given. Counts have the same value."""

_COUNTS = {"numids", "numpairs", "numkeys"}
_VALUES = {
    **dict.fromkeys(("id", "lastid", "max-deleted-id"), b"1-1"),
    **dict.fromkeys(("count", "parts", "maxcount"), b"2"),
    **dict.fromkeys(("min-idle-time", "cursor", "index", "index1", "entries-read"), b"0"),
    **dict.fromkeys(("newkey", "destination"), b"u"),
    "start": b"-", "end": b"+", "stop": b"-1", "last-id": b"9-9", "threshold": b"1",
    "group": b"g", "consumer": b"a", "field": b"f", "value": b"v", "type": b"stream",
    "script": b"return redis.call('EXISTS', KEYS[1])", "timeout": b"1", "username": b"default",
    "command": b"XLEN", "arg": b"s", "section": b"server", "ip:port": b"x:1", "rule": b"+@all",
    "parameter": b"maxclients", "command-name": b"XADD", "category": b"stream",
}  # fmt: skip
_OF_COMMAND = {("xadd", "id"): b"7-7", ("xreadgroup", "id"): b">", ("xread", "id"): b"0",
               ("xgroup|create", "group"): b"h", ("lrange", "start"): b"0"}  # fmt: skip
_KINDS = {"integer": b"1", "double": b"0.1", "pattern": b"*", "unix-time": b"1700000000000"}
_KEYS = {"l": b"list", "r": b"list", "b": b"list", "s": b"set", "h": b"hash", "x": b"s"}
_STRINGS = {"set", "setex", "setnx", "strlen"}
_NUMERIC_KINDS = {"integer", "double", "unix-time"}
_IDS = {"id", "lastid", "last-id", "max-deleted-id", "start", "end", "threshold"}


class Number(bytes):
    """A word of a usage that is a number or an id. ``label`` is the name of the argument; ``is_id`` tells
    whether it may be an id; ``counts`` whether it is the number of other arguments."""

    label = ""
    is_id = counts = False


def names() -> list[bytes]:
    """Return all commands; subcommands of a container as ``XGROUP|CREATE``."""
    found: set[bytes] = set()
    for name, row in COMMANDS.items():
        found |= {name + b"|" + sub for sub in row.subcommands} or {name}
    return sorted(found)


def usages(name: bytes) -> list[tuple[bytes, ...]]:
    """Return the requests of a command, without duplicates."""
    return [tuple(map(bytes, words)) for words in marked_usages(name)]


@cache
def marked_usages(name: bytes) -> list[tuple[bytes, ...]]:
    """Return the same, in which a word that is a number or an id is a `Number`."""
    lower = name.decode().lower()
    arguments = parse_syntax(BY_FULL_NAME[lower].syntax)
    turns = range(_alternatives(arguments))
    every = frozenset(range(len(arguments)))
    found: dict[tuple[bytes, ...], None] = {}
    for wanted in (frozenset[int](), *map(frozenset, ({at} for at in every)), every):
        for turn in turns:
            words = list(name.split(b"|"))
            for at, argument in enumerate(arguments):
                full = at in wanted and (argument.optional or wanted == every)
                words += _words(argument, lower, turn, full=full)
            found[tuple(words)] = None
    return list(found)


def _alternatives(arguments: tuple[Argument, ...]) -> int:
    """Return the largest number of alternatives of an argument."""
    most = 1
    for argument in arguments:
        own = len(argument.parts) if argument.kind == "oneof" else 1
        most = max(most, own, _alternatives(argument.parts))
    return most


def _words(argument: Argument, command: str, turn: int, *, full: bool) -> list[bytes]:
    """Return the words of an argument. ``turn`` selects an alternative; without ``full``, optional
    parts are left out."""
    if argument.optional and not full:
        return []
    token = [argument.token.encode()] if argument.token else []
    if argument.kind == "pure-token":
        return token
    if argument.kind == "oneof":
        inner = _words(argument.parts[turn % len(argument.parts)], command, turn, full=full)
    elif argument.kind == "block":
        inner = [w for part in argument.parts for w in _words(part, command, turn, full=full)]
    else:
        inner = [_value(argument, command, full=full)]
    if not argument.multiple or not full:
        return token + inner
    return (token + inner) * TWICE if argument.multiple_token else token + inner * TWICE


def _value(argument: Argument, command: str, *, full: bool) -> bytes:
    if argument.kind == "key":
        found = b"string" if command in _STRINGS else _KEYS.get(command[0], b"string")
        return _VALUES.get(argument.name, found)
    special = _OF_COMMAND.get((command, argument.name)) or _VALUES.get(argument.name)
    found = special or _KINDS.get(argument.kind, b"x")
    counts = argument.name in _COUNTS
    is_id = argument.kind == "string" and argument.name in _IDS
    if not is_id and argument.kind not in _NUMERIC_KINDS and argument.name != "min-idle-time":
        return found
    number = Number(b"%d" % (TWICE if full else 1) if counts else found)
    number.label, number.is_id, number.counts = argument.token or argument.name, is_id, counts
    return number
