"""MODULE: this server cannot load modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.commands.call import Call
from headwater.commands.help import write_help

if TYPE_CHECKING:
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session


def module_list(call: Call, session: Session, services: Services) -> None:
    """MODULE LIST: an empty list."""
    call.reply.array(0)


def module_help(call: Call, session: Session, services: Services) -> None:
    """MODULE HELP."""
    write_help(call, b"MODULE", {})
