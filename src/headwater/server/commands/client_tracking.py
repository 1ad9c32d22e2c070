"""CLIENT TRACKINGINFO, GETREDIR and CACHING, for a server without client-side caching.

CLIENT TRACKING itself does not exist, so a client that needs it gets an error.
"""

from __future__ import annotations

from typing import NoReturn

from headwater.commands.call import Call
from headwater.errors import CommandError
from headwater.resp.replies import Members
from headwater.server.services.services import Services
from headwater.server.session.session import Session

_NOT_TRACKED = -1


def client_trackinginfo(call: Call, session: Session, services: Services) -> None:
    """CLIENT TRACKINGINFO: tracking is off."""
    call.reply.value({"flags": Members(["off"]), "redirect": _NOT_TRACKED, "prefixes": []})


def client_getredir(call: Call, session: Session, services: Services) -> None:
    """CLIENT GETREDIR: -1, because tracking is off."""
    call.reply.integer(_NOT_TRACKED)


def client_caching(call: Call, session: Session, services: Services) -> NoReturn:
    """CLIENT CACHING YES|NO: Redis's error for a client without tracking."""
    raise CommandError(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or "
        "OPTOUT mode enabled"
    )
