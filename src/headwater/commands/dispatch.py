"""Finds the command that a request names, and checks the number of its arguments.

`KnownCommand` is a declaration of the command table prepared for this. Commands on keys have their
function here; the server looks up those on sessions in `headwater.server.commands`. A subcommand's name
is its container's and its own, ``XGROUP|CREATE``, as in Redis.
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
"""The functions of the commands on keys, by name: ``XADD``, ``XGROUP|CREATE``."""

_SHOWN_BYTES = 128
"""How many bytes of its arguments the error of an unknown command repeats (Redis,
commandCheckExistence)."""


class KnownCommand:
    """A command or subcommand as requests are dispatched to it, made from its declaration.

    ``name`` is upper case: ``XGROUP|CREATE``. ``function`` is None for a command that acts on sessions
    and services. The other attributes are those of ``command``, as numbers and flags that compiled code
    reads without looking into Python objects.
    """

    def __init__(self, name: bytes, command: Command) -> None:
        self.name = name
        self.number = next(_numbers)
        """One of `KNOWN_COUNT`."""
        self.typed = name
        """The spelling that a client used last, in whatever case."""
        self.command = command
        self.title = command.name
        self.function: Function | None = FUNCTIONS.get(name)
        self.arity = command.arity
        self.before_login = "no_auth" in command.flags
        self.while_loading = "loading" in command.flags
        """Whether it runs before the store's content is loaded."""
        self.never_queued = "no_multi" in command.flags
        """Whether it is refused within MULTI."""
        self.writes = command.writes
        self.enlarges = "denyoom" in command.flags
        """Whether it may take more memory. See `takes_memory`."""
        self.on_keys = "readonly" in command.flags or "write" in command.flags
        self.alone = not command.subcommands and b"|" not in name
        """Whether the first argument alone identifies it."""
        self.subcommands: dict[bytes, KnownCommand] | None = None
        if command.subcommands:
            self.subcommands = {
                word: KnownCommand(name + b"|" + word, sub)
                for word, sub in command.subcommands.items()
            }

    def takes_memory(self, arguments: Arguments) -> bool:
        """Return whether a request may take more memory, and is refused beyond maxmemory. XSETTLE settles in any
        case; only with ``TO`` it also adds entries."""
        takes = self.enlarges
        if takes and self.name == b"XSETTLE":
            takes = False
            for index in range(4, arguments.count):
                takes = takes or arguments.token(index) == b"TO"
        return takes

    def subcommand(self, arguments: Arguments) -> KnownCommand:
        """The subcommand that argument 1 names. Raises `CommandError` if it is unknown."""
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
"""The commands by the spellings that clients used, in any case."""
_MOST_SPELLINGS = 1024


def find_command(arguments: Arguments) -> KnownCommand:
    """The command or subcommand that a request names.

    Raises `CommandError`, with Redis's texts, for an unknown name and for a wrong number of arguments.
    """
    return _checked(_named(arguments), arguments)


def find_like(last: KnownCommand, arguments: Arguments) -> KnownCommand:
    """As `find_command`, faster if the request repeats ``last``, the client's last command."""
    if last.alone and is_part(
        last.typed, arguments.buffer, word_at(arguments.starts, 0), word_at(arguments.ends, 0)
    ):
        return _checked(last, arguments)
    return find_command(arguments)


def _named(arguments: Arguments) -> KnownCommand:
    """The command of that name. Raises `CommandError` if it is unknown."""
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
    """The command or its subcommand. Raises `CommandError` if the number of arguments does not fit."""
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
