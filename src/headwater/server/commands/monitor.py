"""MONITOR: a client receives every command that the server runs."""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.errors import CommandError
from headwater.server.services.services import Services
from headwater.server.session.session import Session


def monitor(call: Call, session: Session, services: Services) -> None:
    """MONITOR: send every command to this client until RESET or the end of the connection.

    A second MONITOR has no reply, as in Redis. A monitoring client may not use keys.
    """
    if not call.may_block:
        raise CommandError("ERR MONITOR isn't allowed for DENY BLOCKING client")
    if session.subscriptions.monitoring:
        return
    services.observer.start_monitoring(session)
    call.reply.ok()
