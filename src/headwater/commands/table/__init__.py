"""The command table: every command as one value, a `Command`, in a module for each family.

COMMAND, COMMAND DOCS, the arity check, key positions, ACL categories, the dispatch and the reference
page are derived from these values. To add a command, add its value to its family's module, its function
and its tests. tests/conformance/test_protocol_table.py compares the values of Redis's commands with a real
server. For Headwater's own commands, ``since`` is a version of Headwater.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from headwater.commands.table import (
    acl,
    cluster,
    connection,
    generic,
    persistence,
    pubsub,
    scripting,
    server,
    streams,
    transactions,
    values,
)
from headwater.commands.table.command import Command
from headwater.commands.table.foreign import FOREIGN

_FAMILIES = (
    streams,
    generic,
    values,
    transactions,
    connection,
    pubsub,
    acl,
    server,
    persistence,
    scripting,
    cluster,
)


def _declared(family: ModuleType) -> Iterator[Command]:
    """Yield the available commands of a module, in the order of their declarations."""
    for value in vars(family).values():
        if isinstance(value, Command) and value.available:
            yield value


COMMANDS: dict[bytes, Command] = {
    command.name.upper().encode(): command for family in _FAMILIES for command in _declared(family)
}
"""Upper-case name → command. Subcommands are in the value of their container."""


def every_command() -> Iterator[Command]:
    """Yield every command, each followed by its subcommands."""
    for command in COMMANDS.values():
        yield command
        yield from command.subcommands.values()


BY_FULL_NAME: dict[str, Command] = {command.name: command for command in every_command()}
"""Full name of a command or subcommand (``xadd``, ``xgroup|create``) → its declaration."""

CATEGORIES_OF: dict[str, tuple[str, ...]] = FOREIGN | {
    name: command.categories for name, command in BY_FULL_NAME.items()
}
"""Full name of a command or subcommand → its ACL categories, including commands that only other servers have."""

__all__ = ["BY_FULL_NAME", "CATEGORIES_OF", "COMMANDS", "Command", "every_command"]
