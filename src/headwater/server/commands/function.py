"""FUNCTION FLUSH and FUNCTION LIST, for a server without functions."""

from __future__ import annotations

from headwater.commands.call import Call, shown
from headwater.commands.help import wrong_arguments
from headwater.errors import CommandError
from headwater.server.services.services import Services
from headwater.server.session.session import Session

FLUSH_MODES = frozenset({b"SYNC", b"ASYNC"})


def function_flush(call: Call, session: Session, services: Services) -> None:
    """FUNCTION FLUSH [ASYNC|SYNC]: OK."""
    arguments = call.arguments
    if arguments.count > 3:
        raise wrong_arguments(arguments)
    if arguments.count == 3 and arguments.token(2) not in FLUSH_MODES:
        raise CommandError("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
    call.reply.ok()


def function_list(call: Call, session: Session, services: Services) -> None:
    """FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]: an empty list."""
    arguments = call.arguments
    index, named, with_code = 2, False, False
    while index < arguments.count:
        word = arguments.token(index)
        if word == b"WITHCODE" and not with_code:
            with_code = True
        elif word == b"LIBRARYNAME" and not named:
            if index + 1 == arguments.count:
                raise CommandError("ERR library name argument was not given")
            named = True
            index += 1
        else:
            raise CommandError(f"ERR Unknown argument {shown(arguments.bytes(index))}")
        index += 1
    call.reply.array(0)
