"""MODULE: this server cannot load modules."""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.server.services.services import Services
from headwater.server.session.session import Session


def module_list(call: Call, session: Session, services: Services) -> None:
    """MODULE LIST: an empty list."""
    call.reply.array(0)
