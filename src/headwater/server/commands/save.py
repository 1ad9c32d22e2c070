"""SAVE, BGSAVE, LASTSAVE and BGREWRITEAOF: refused, because the journal already holds every write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.commands.call import Call
from headwater.errors import CommandError

if TYPE_CHECKING:
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session

_NOT_YET = (
    "ERR {what} is not part of this release: {journal}. To make a copy, copy the data directory of a "
    "stopped server."
)
_KEPT = "it is not needed, because every write is in the journal before its reply is sent"
_NOT_KEPT = "this server runs with appendonly no and stores nothing; start it with appendonly yes"


def lastsave(call: Call, session: Session, services: Services) -> None:
    """LASTSAVE: nothing was ever saved. Exporters read ``rdb_last_save_time`` of INFO instead."""
    raise _not_yet("LASTSAVE", services)


def save(call: Call, session: Session, services: Services) -> None:
    """SAVE."""
    raise _not_yet("SAVE", services)


def bgsave(call: Call, session: Session, services: Services) -> None:
    """BGSAVE [SCHEDULE]."""
    arguments = call.arguments
    if arguments.count > 2 or (arguments.count == 2 and arguments.token(1) != b"SCHEDULE"):
        raise CommandError("ERR syntax error")
    raise _not_yet("BGSAVE", services)


def bgrewriteaof(call: Call, session: Session, services: Services) -> None:
    """BGREWRITEAOF."""
    raise _not_yet("BGREWRITEAOF", services)


def _not_yet(what: str, services: Services) -> CommandError:
    journal = _KEPT if services.journal is not None else _NOT_KEPT
    return CommandError(_NOT_YET.format(what=what, journal=journal))
