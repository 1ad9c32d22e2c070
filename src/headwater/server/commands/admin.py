"""INFO, TIME, SHUTDOWN: the server as a whole."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headwater.commands.call import SYNTAX, Call
from headwater.errors import CommandError
from headwater.server.services.acl.rules import shown
from headwater.server.services.observability.info import render

if TYPE_CHECKING:
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session

log = logging.getLogger("headwater.server")


def info(call: Call, session: Session, services: Services) -> None:
    """INFO [section …]."""
    wanted = {
        call.arguments.bytes(index).decode("utf-8", "surrogateescape").lower()
        for index in range(1, call.arguments.count)
    }
    call.reply.verbatim(render(services, wanted))


def time(call: Call, session: Session, services: Services) -> None:
    """TIME: Unix seconds, and microseconds within the second."""
    seconds, milliseconds = divmod(services.times.wall_now(), 1000)
    call.reply.bulks([b"%d" % seconds, b"%d" % (milliseconds * 1000)])


def shutdown(call: Call, session: Session, services: Services) -> None:
    """SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] | ABORT: a clean stop, without an answer.

    SAVE and NOSAVE make no difference: what was acknowledged is in the journal, or there is none.
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
    services.state.stopping = True
    session.closing = True
