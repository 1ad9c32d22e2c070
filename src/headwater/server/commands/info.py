"""INFO and TIME."""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.server.services.observability.info import render
from headwater.server.services.services import Services
from headwater.server.session.session import Session


def info(call: Call, session: Session, services: Services) -> None:
    """INFO [section …]: the state of the server, as text."""
    wanted = {
        call.arguments.bytes(index).decode("utf-8", "surrogateescape").lower()
        for index in range(1, call.arguments.count)
    }
    call.reply.verbatim(render(services, wanted))


def time(call: Call, session: Session, services: Services) -> None:
    """TIME: the Unix time in seconds, and the microseconds within the second."""
    seconds, milliseconds = divmod(services.times.wall_now(), 1000)
    call.reply.bulks([b"%d" % seconds, b"%d" % (milliseconds * 1000)])
