"""CLUSTER, READONLY, READWRITE, ASKING: refused, because the server has no cluster mode."""

from __future__ import annotations

from typing import NoReturn

from headwater.commands.call import Call
from headwater.errors import CommandError
from headwater.server.services.services import Services
from headwater.server.session.session import Session


def no_cluster(call: Call, session: Session, services: Services) -> NoReturn:
    """Raise the error of a Redis server without cluster mode, for every command of Redis Cluster, including
    CLUSTER HELP."""
    raise CommandError("ERR This instance has cluster support disabled")
