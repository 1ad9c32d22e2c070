"""Finds the command that a request names, and checks the number of its arguments.

`KnownCommand` is a declaration of the command table, prepared for dispatch. For a command on keys, it holds the
function to call; the server looks up the functions of commands on sessions in `headwater.server.commands`. As in
Redis, the name of a subcommand includes its container's: ``XGROUP|CREATE``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from headwater.commands.call import Call, Wait, shown
from headwater.commands.functions import functions_of
from headwater.commands.jobs import Job
from headwater.commands.table import COMMANDS, Command
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import is_part, word_at

Function = Callable[[Call], Wait | Job | None]

FUNCTIONS: dict[bytes, Function] = functions_of("headwater.commands", on_session=False)
"""Name of a command on keys (``XADD``, ``XGROUP|CREATE``) → its function."""

_SHOWN_BYTES = 128
"""Maximum number of bytes of the arguments that the error for an unknown command repeats (Redis,
commandCheckExistence)."""


class KnownCommand:
    """A command or subcommand, prepared for dispatch from its declaration.

    ``name`` is upper case: ``XGROUP|CREATE``. ``function`` is None for a command that acts on sessions
    and services. The other attributes repeat those of ``command`` as numbers and flags, which compiled code
    reads without accessing Python objects.
    """

    def __init__(self, name: bytes, command: Command) -> None:
        self.name = name
        self.number = next(_numbers)
        """Number of the command, from 0 to `KNOWN_COUNT` - 1."""
        self.typed = name
        """The spelling of the name that was learned last (`_spelled`), in any case."""
        self.command = command
        self.title = command.name
        self.function: Function | None = FUNCTIONS.get(name)
        self.arity = command.arity
        self.before_login = "no_auth" in command.flags
        self.while_loading = "loading" in command.flags
        """True if the command may run before the store's content is loaded."""
        self.never_queued = "no_multi" in command.flags
        """True if the command is refused within MULTI."""
        self.writes = command.writes
        self.enlarges = "denyoom" in command.flags
        """True if the command may need more memory. See `takes_memory`."""
        self.on_keys = "readonly" in command.flags or "write" in command.flags
        self.alone = not command.subcommands and b"|" not in name
        """True if the first argument of a request alone identifies the command."""
        self.subcommands: dict[bytes, KnownCommand] | None = None
        if command.subcommands:
            self.subcommands = {
                word: KnownCommand(name + b"|" + word, sub)
                for word, sub in command.subcommands.items()
            }

    def takes_memory(self, arguments: Arguments) -> bool:
        """Return whether a request may need more memory, so that it is refused above maxmemory. XSETTLE needs more
        only with ``TO``, which adds entries."""
        takes = self.enlarges
        if takes and self.name == b"XSETTLE":
            takes = False
            for index in range(4, arguments.count):
                takes = takes or arguments.token(index) == b"TO"
        return takes

    def subcommand(self, arguments: Arguments) -> KnownCommand:
        """Return the subcommand named by argument 1. Raises `CommandError` if it is unknown."""
        assert self.subcommands is not None
        found = self.subcommands.get(arguments.token(1))
        if found is None:
            typed = shown(arguments.bytes(1)[:_SHOWN_BYTES])
            raise CommandError(
                f"ERR unknown subcommand '{typed}'. Try {self.name.decode('latin-1')} HELP."
            )
        return found


_numbers = itertools.count()
_known = {name: KnownCommand(name, command) for name, command in COMMANDS.items()}
KNOWN_COUNT = next(_numbers)
"""The number of commands and subcommands."""
_spelled: dict[bytes, KnownCommand] = {}
"""Spelling of a name by a client, in any case → the command."""
_MOST_SPELLINGS = 1024


def find_command(arguments: Arguments) -> KnownCommand:
    """Return the command or subcommand that a request names.

    Raises `CommandError`, with Redis's texts, for an unknown name and for a wrong number of arguments.
    """
    return _checked(_named(arguments), arguments)


def find_like(last: KnownCommand, arguments: Arguments) -> KnownCommand:
    """Return the command as `find_command` does, but faster if it is again ``last``, the client's last command."""
    if last.alone and is_part(
        last.typed, arguments.buffer, word_at(arguments.starts, 0), word_at(arguments.ends, 0)
    ):
        return _checked(last, arguments)
    return find_command(arguments)


def _named(arguments: Arguments) -> KnownCommand:
    """Return the command named by argument 0. Raises `CommandError` if it is unknown."""
    typed = arguments.bytes(0)
    found = _spelled.get(typed)
    if found is None:
        found = _known.get(typed.upper())
        if found is None:
            raise CommandError(_unknown(arguments))
        if len(_spelled) < _MOST_SPELLINGS:
            _spelled[typed] = found
            found.typed = typed
    return found


def _checked(found: KnownCommand, arguments: Arguments) -> KnownCommand:
    """Return the command or its subcommand. Raises `CommandError` if the number of arguments is wrong."""
    count = arguments.count
    if found.subcommands is not None and count > 1:
        found = found.subcommand(arguments)
    if (found.arity > 0 and count != found.arity) or count < -found.arity:
        full = found.name.decode("latin-1").lower()
        raise CommandError(f"ERR wrong number of arguments for '{full}' command")
    return found


def _unknown(arguments: Arguments) -> str:
    repeated = ""
    for index in range(1, arguments.count):
        if len(repeated) >= _SHOWN_BYTES:
            break
        room = _SHOWN_BYTES - len(repeated)
        repeated += "'" + shown(arguments.bytes(index)[:room]) + "' "
    typed = shown(arguments.bytes(0)[:_SHOWN_BYTES])
    return f"ERR unknown command '{typed}', with args beginning with: {repeated}"
