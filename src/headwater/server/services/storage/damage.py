"""The reply to a command that needs entries that cannot be read from disk."""

from __future__ import annotations

from headwater.commands.call import shown
from headwater.commands.key_specs import find_keys
from headwater.commands.table import Command
from headwater.errors import CommandError, JournalDamaged
from headwater.resp.arguments import Arguments

_KEYS = 3


def unreadable(error: JournalDamaged, command: Command, arguments: Arguments) -> CommandError:
    """Return the error reply for damaged entries. The reply names the command's first keys. ``error`` names the
    file, the offset, and the ids if they are known."""
    found = find_keys(arguments, command.keys, command.finder)[:_KEYS]
    keys = ", ".join(f"'{shown(arguments.bytes(key.position))}'" for key in found)
    return CommandError(f"ERR entries of {keys} cannot be read from disk. {error}")
