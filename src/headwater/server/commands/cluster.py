"""CLUSTER, READONLY, READWRITE, ASKING, MODULE: what there is none of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from headwater.commands.call import Call
from headwater.commands.help import write_help
from headwater.errors import CommandError

if TYPE_CHECKING:
    from headwater.server.services.services import Services
    from headwater.server.session.session import Session


def no_cluster(call: Call, session: Session, services: Services) -> NoReturn:
    """Every command of Redis Cluster, CLUSTER HELP included, as in a Redis that runs alone."""
    raise CommandError("ERR This instance has cluster support disabled")


def module_list(call: Call, session: Session, services: Services) -> None:
    """MODULE LIST: nothing can be loaded into this server."""
    call.reply.array(0)


def module_help(call: Call, session: Session, services: Services) -> None:
    """MODULE HELP."""
    write_help(call, b"MODULE", {})
