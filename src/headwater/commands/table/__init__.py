"""The command table: every command as one value, a `Command`, in a module for each family.

COMMAND, COMMAND DOCS, the arity check, key positions, ACL categories, the dispatch and the reference
page are derived from these values. To add a command, add its value to its family's module, its function
and its tests. tests/conformance/test_protocol_table.py compares the values of commands that Redis has
with a real server. ``since`` of Headwater's own commands is a version of Headwater.
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
    """The commands of a module, in the order of their declarations."""
    for value in vars(family).values():
        if isinstance(value, Command) and value.available:
            yield value


COMMANDS: dict[bytes, Command] = {
    command.name.upper().encode(): command for family in _FAMILIES for command in _declared(family)
}
"""Every command by its upper-case name; subcommands are in their container's value."""


def every_command() -> Iterator[Command]:
    """Every command, each followed by its subcommands."""
    for command in COMMANDS.values():
        yield command
        yield from command.subcommands.values()


BY_FULL_NAME: dict[str, Command] = {command.name: command for command in every_command()}
"""Every command and subcommand: ``xadd``, ``xgroup|create``."""

CATEGORIES_OF: dict[str, tuple[str, ...]] = FOREIGN | {
    name: command.categories for name, command in BY_FULL_NAME.items()
}
"""The ACL categories of every command and subcommand, including those that only other servers have."""

__all__ = ["BY_FULL_NAME", "CATEGORIES_OF", "COMMANDS", "Command", "every_command"]
