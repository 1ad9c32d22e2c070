"""COMMAND DOCS describes arguments as Redis does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from headwater.commands.syntax import parse_syntax
from headwater.commands.table import Command, every_command
from headwater.testing.server import server_thread
from tests.peers import Peer

DIFFERENT = {
    "xadd": "IDMP and IDMPAUTO came with 8.6",
    "xread": "MAXCOUNT and MAXSIZE came with 8.10",
    "xreadgroup": "CLAIM came with 8.4, MAXCOUNT and MAXSIZE with 8.10",
    "client|kill": "each filter is described as optional there; at least one is needed",
    "set": "IFEQ, IFNE, IFDEQ and IFDNE came with 8.4",
    "debug": "Redis describes nothing",
}


TAKES_ANYTHING = {"command", "quit"}
"""COMMAND's argument is a subcommand; QUIT ignores its arguments."""


def described(docs: Any, name: str) -> Any:
    """Return what COMMAND DOCS says about a command or subcommand; None if it is unknown."""
    container, _, word = name.partition("|")
    found = docs.get(container)
    return found.get("subcommands", {}).get(name) if found and word else found


def shown(argument: dict[str, Any]) -> str:
    """Format an argument as a line, with types."""
    kind, flags = argument["type"], argument.get("flags", [])
    token = argument.get("token")
    token = '""' if token == "" else token
    optional, multiple = "optional" in flags, "multiple" in flags
    if kind == "pure-token":
        line = str(token)
    elif kind == "oneof":
        line = " | ".join(map(shown, argument["arguments"]))
        line = line if optional and not token and not multiple else f"<{line}>"
    elif kind == "block":
        line = " ".join(map(shown, argument["arguments"]))
    else:
        line = f"{argument['display_text']}:{kind}:{argument.get('key_spec_index', '')}"
    if token and kind != "pure-token":
        again = f" [{token} {line} ...]" if "multiple_token" in flags else f" [{line} ...]"
        line = f"{token} {line}" + (again if multiple else "")
    elif multiple:
        line = f"{line} [{line} ...]"
    return f"[{line}]" if optional else line


def text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {text(key): text(item) for key, item in value.items()}
    return [text(item) for item in value] if isinstance(value, (list, set, tuple)) else value


def docs_of(port: int) -> Any:
    with redis.Redis(port=port, protocol=3) as client:
        client.response_callbacks.clear()
        return text(client.execute_command("COMMAND DOCS"))


@pytest.mark.peer
def test_arguments_are_described_as_in_redis(
    shared_peer: Callable[[str], Peer],
) -> None:
    theirs = docs_of(shared_peer("redis-8.2").port)
    with server_thread() as server:
        ours = docs_of(server.port)
    wrong = []
    for command in every_command():
        real = described(theirs, command.name)
        if real is None or command.subcommands or command.name in DIFFERENT:
            continue
        lines = [
            " ".join(map(shown, docs.get("arguments", [])))
            for docs in (described(ours, command.name), real)
        ]
        if lines[0] != lines[1]:
            wrong.append(f"{command.name}\n    we:   {lines[0]}\n    they: {lines[1]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", DIFFERENT)
@pytest.mark.peer
def test_known_differences_of_descriptions_exist(
    name: str, shared_peer: Callable[[str], Peer]
) -> None:
    theirs = described(docs_of(shared_peer("redis-8.2").port), name)
    with server_thread() as server:
        ours = described(docs_of(server.port), name)
    assert list(map(shown, ours["arguments"])) != list(map(shown, theirs.get("arguments", [])))


@pytest.mark.parametrize("command", list(every_command()), ids=lambda command: command.name)
def test_a_command_with_arguments_has_a_syntax(command: Command) -> None:
    taken = 2 if "|" in command.name else 1
    takes_arguments = command.arity > taken or command.arity < 0
    has_own = not command.subcommands and command.name not in TAKES_ANYTHING
    assert bool(command.syntax) == (takes_arguments and has_own)
    for argument in parse_syntax(command.syntax):
        assert argument.name
