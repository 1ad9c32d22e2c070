"""SHUTDOWN."""

from __future__ import annotations

import logging

from headwater.commands.call import SYNTAX, Call
from headwater.errors import CommandError
from headwater.server.services.acl.rules import shown
from headwater.server.services.services import Services
from headwater.server.session.session import Session

log = logging.getLogger("headwater.server")


def shutdown(call: Call, session: Session, services: Services) -> None:
    """SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] | ABORT: stop the server cleanly, without a reply.

    Acknowledged writes are in the journal in any case, if the node has one. If the journal is long, the stop also
    writes an image, unless NOSAVE was given, so that the next start is quick.
    """
    arguments = call.arguments
    words = [arguments.token(index) for index in range(1, arguments.count)]
    if words == [b"ABORT"]:
        raise CommandError("ERR No shutdown in progress.")
    if not set(words) <= {b"NOSAVE", b"SAVE", b"NOW", b"FORCE"} or {b"SAVE", b"NOSAVE"} <= set(
        words
    ):
        raise CommandError(SYNTAX)
    if not call.may_block:
        raise CommandError("ERR Command not allowed inside a transaction")
    if session.client.kind == "embedded":
        raise CommandError(
            "ERR an embedded store has no server to shut down; close the client instead"
        )
    log.info(
        "SHUTDOWN by client %d (%s), user %s: the server stops",
        session.id,
        session.client.address,
        shown(session.user.name),
    )
    services.state.writes_image_at_stop = b"NOSAVE" not in words
    services.state.stopping = True
    session.closing = True
