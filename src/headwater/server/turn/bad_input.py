"""Ends a connection whose input is not a request, or could not be read because of an internal error."""

from __future__ import annotations

from headwater.common.names import escaped
from headwater.errors import ProtocolError
from headwater.server.services.services import Services
from headwater.server.session.session import Session


def refuse_input(session: Session, error: Exception, services: Services) -> None:
    """Reply with an error, and close the connection."""
    if isinstance(error, ProtocolError):
        text = f"ERR {error}"
    else:
        text = str(services.faults.refuse(error, "a request", changed=False))
    session.output.reply.error(text)
    session.closing = True
    services.client_log.warning(
        "client %d (%s) is disconnected: %s",
        session.id,
        session.client.address,
        escaped(text.removeprefix("ERR ")),
    )
