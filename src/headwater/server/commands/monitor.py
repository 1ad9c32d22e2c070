"""MONITOR: this client is shown every command as it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.commands.call import Call
from headwater.errors import CommandError

if TYPE_CHECKING:
    from headwater.server.session.session import Session
    from headwater.server.turn.node import Node


def monitor(call: Call, session: Session, node: Node) -> None:
    """MONITOR, until RESET or the end of the connection.

    Asked again it says nothing, as in Redis; and the client may not touch keys meanwhile.
    """
    if not call.may_block:
        raise CommandError("ERR MONITOR isn't allowed for DENY BLOCKING client")
    if session.monitoring:
        return
    session.monitoring = True
    node.observer.monitors.add(session)
    node.observer.choose()
    call.reply.ok()


def stop_monitoring(session: Session, node: Node) -> None:
    """RESET, or the client is gone."""
    if session.monitoring:
        session.monitoring = False
        node.observer.monitors.discard(session)
        node.observer.choose()
