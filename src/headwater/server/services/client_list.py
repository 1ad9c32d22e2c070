"""Formats a client as a line of CLIENT LIST. ACL LOG stores the line of each refused client."""

from __future__ import annotations

from headwater.server.services.blocking import BlockedClients
from headwater.server.services.turn_clock import TurnClock
from headwater.server.services.watching import Watches
from headwater.server.session.session import Session


def describe(
    session: Session,
    *,
    times: TurnClock,
    blocked: BlockedClients,
    watches: Watches,
    running: bool = True,
) -> bytes:
    """Return the fields of ``session``, in Redis's order. A field that does not apply here is 0 (``redir``: -1).
    The bytes of a request that is ``running`` count as unread, as in Redis."""
    now = times.monotonic()
    queued = session.transaction.queue
    unsent = getattr(session.driver, "unsent", 0)
    values: dict[str, object] = {
        "id": session.id,
        "addr": session.client.address,
        "laddr": session.client.local_address,
        "fd": getattr(session.driver, "descriptor", -1),
        "name": session.client.name.decode("ascii"),
        "age": int(now - session.client.created),
        "idle": int(now - session.client.last_interaction),
        "flags": _flags(session, blocked, watches),
        "db": session.db_index,
        "sub": len(session.subscriptions.channels),
        "psub": len(session.subscriptions.patterns),
        "ssub": len(session.subscriptions.shard_channels),
        "multi": -1 if queued is None else len(queued),
        "watch": len(session.transaction.watch.keys),
        "qbuf": session.scanner.buffered() if running else session.scanner.unread(),
        "qbuf-free": 0,
        "argv-mem": 0,
        "multi-mem": session.transaction.queued_bytes(),
        "rbs": 0,
        "rbp": 0,
        "obl": len(session.output.released),
        "oll": int(unsent > 0),
        "omem": unsent + len(session.output.pushes),
        "tot-mem": session.memory_bytes() + session.held_bytes(),
        "events": "rw" if unsent else "r",
        "cmd": session.last_command or "NULL",
        "user": session.user.name.decode("utf-8", "surrogateescape"),
        "redir": -1,
        "resp": session.resp,
        "lib-name": session.client.lib_name.decode("ascii"),
        "lib-ver": session.client.lib_version.decode("ascii"),
        "io-thread": 0,
        "tot-net-in": getattr(session.driver, "received", 0),
        "tot-net-out": getattr(session.driver, "sent", 0),
        "tot-cmds": session.commands,
    }
    line = " ".join(f"{name}={value}" for name, value in values.items())
    return line.encode("utf-8", "surrogateescape")


def _flags(session: Session, blocked: BlockedClients, watches: Watches) -> str:
    flags = session.client.role + ("O" if session.subscriptions.monitoring else "")
    if session.subscriptions.active:
        flags += "P"
    if session.transaction.queue is not None:
        flags += "x"
    if blocked.waiter_of(session) is not None:
        flags += "b"
    if watches.broken(session.transaction.watch):
        flags += "d"
    if session.closing:
        flags += "c"
    if session.client.kind == "unix":
        flags += "U"
    return flags or "N"
