"""The end of a connection that sends bytes that are not a request."""

from __future__ import annotations

from headwater.errors import ProtocolError
from headwater.log_limit import LimitedLog
from headwater.server.log import escaped
from headwater.server.session.session import Session


def refuse_input(session: Session, error: ProtocolError, log: LimitedLog) -> None:
    """Reply with an error, and close the connection."""
    session.output.reply.error(f"ERR {error}")
    session.closing = True
    log.warning(
        "client %d (%s) is disconnected: %s",
        session.id,
        session.client.address,
        escaped(str(error)),
    )
