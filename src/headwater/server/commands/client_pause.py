"""CLIENT PAUSE and CLIENT UNPAUSE."""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.help import wrong_arguments
from headwater.commands.times import milliseconds
from headwater.errors import CommandError
from headwater.server.services.services import Services
from headwater.server.session.session import Session


def client_pause(call: Call, session: Session, services: Services) -> None:
    """CLIENT PAUSE ms [WRITE|ALL]: delay all commands, or only writes, for that time."""
    arguments = call.arguments
    if arguments.count > 4:
        raise wrong_arguments(arguments)
    mode = arguments.token(3) if arguments.count == 4 else b"ALL"
    if mode not in {b"ALL", b"WRITE"}:
        raise CommandError("ERR CLIENT PAUSE mode must be WRITE or ALL")
    timeout_ms = milliseconds(arguments, 2, call.now_ms)
    until = round(services.times.monotonic() + timeout_ms / 1000, 6)
    services.blocked.pause.begin(until, everything=mode == b"ALL")
    call.reply.ok()


def client_unpause(call: Call, session: Session, services: Services) -> None:
    """CLIENT UNPAUSE: run the delayed commands now."""
    services.blocked.end_pause()
    call.reply.ok()
