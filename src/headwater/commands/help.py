"""The HELP of a container of subcommands, and the error that refers to it."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.commands.call import Call, shown
from headwater.commands.table import COMMANDS
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments


def write_help(call: Call, container: bytes, syntax: dict[bytes, str]) -> None:
    """Write each subcommand with its summary. ``syntax`` has the arguments of those that take any.

    A container that is also a command by itself has its own arguments under the empty name.
    """
    command = COMMANDS[container]
    lines = [f"{container.decode()} <subcommand> [<arg> ...]. Subcommands are:"]
    if b"" in syntax:
        lines += [syntax[b""], f"    {command.summary}"]
    for name, sub in command.subcommands.items():
        lines += [f"{name.decode()} {syntax.get(name, '')}".rstrip(), f"    {sub.summary}"]
    write_lines(call, lines)


def write_lines(call: Call, lines: Sequence[str]) -> None:
    """Write the lines of a HELP."""
    call.reply.array(len(lines))
    for line in lines:
        call.reply.simple(line.encode())


def wrong_arguments(arguments: Arguments) -> CommandError:
    """The error of a subcommand that is unknown or has too many arguments."""
    container = shown(arguments.token(0))
    word = shown(arguments.bytes(1)[:128])
    return CommandError(
        f"ERR unknown subcommand or wrong number of arguments for '{word}'. Try {container} HELP."
    )
