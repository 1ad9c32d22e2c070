"""ROLE, REPLICAOF and SLAVEOF: the server is a primary without replicas."""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.errors import CommandError
from headwater.server.services.services import Services
from headwater.server.session.session import Session


def role(call: Call, session: Session, services: Services) -> None:
    """ROLE: ``master``, the replication offset, the replicas."""
    call.reply.value(["master", 0, []])


def replicaof(call: Call, session: Session, services: Services) -> None:
    """REPLICAOF NO ONE, SLAVEOF NO ONE: OK; other arguments are refused."""
    if call.arguments.token(1) != b"NO" or call.arguments.token(2) != b"ONE":
        raise CommandError(
            "ERR there is no replication in this release: this server is a primary and stays one"
        )
    call.reply.ok()
