"""MONITOR: sends every command that runs to the monitoring clients.

A line is ``+<seconds>.<microseconds> [<db> <client>] "SET" "k" "v"``, as in Redis. Commands that
administer the server are omitted, and so are those that were rejected before they ran.
"""

from __future__ import annotations

from headwater.commands.table import Command
from headwater.server.session.clients import Clients
from headwater.server.session.session import Session

_SHOWN: dict[int, bytes] = {
    0x07: b"\\a", 0x08: b"\\b", 0x09: b"\\t", 0x0A: b"\\n", 0x0D: b"\\r",
    0x22: b'\\"', 0x5C: b"\\\\",
}  # fmt: skip
_QUOTED = [
    _SHOWN.get(byte, bytes((byte,)) if 0x20 <= byte < 0x7F else b"\\x%02x" % byte)
    for byte in range(256)
]


def quoted(value: bytes) -> bytes:
    """Return ``value`` in double quotes, with unprintable bytes escaped (sds.c, sdscatrepr).

    >>> print(quoted(b'a "b"\\n').decode())
    "a \\"b\\"\\n"
    """
    return b'"' + b"".join([_QUOTED[byte] for byte in value]) + b'"'


class Monitors:
    """The monitoring sessions, in the order in which they started. The truth value is False without sessions."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._sessions: dict[Session, None] = {}
        self.source: bytes | None = None
        """Word shown instead of the client's address while a script runs commands (``lua``); otherwise None."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: object) -> bool:
        return session in self._sessions

    def add(self, session: Session) -> None:
        self._sessions[session] = None

    def discard(self, session: Session) -> None:
        self._sessions.pop(session, None)

    def feed(self, session: Session, row: Command, values: list[bytes], wall_ms: int) -> None:
        """Send a command of ``session`` to all monitors, unless it is hidden from them."""
        if "admin" not in row.flags and "skip_monitor" not in row.flags:
            self.send(session, values, wall_ms)

    def send(self, session: Session, values: list[bytes], wall_ms: int) -> None:
        """Send a request of ``session`` to all monitors."""
        line = b"+%d.%06d [%d %b] %b\r\n" % (
            wall_ms // 1000,
            wall_ms % 1000 * 1000,
            session.db_index,
            self.source or _source(session),
            b" ".join([quoted(value) for value in values]),
        )
        for monitor in self._sessions:
            # A monitor gets the line of its own command after the command's reply.
            out = monitor.output.messages(executing=monitor is session)
            out += line
            self._clients.wrote_to(monitor)


def _source(session: Session) -> bytes:
    if session.client.kind == "unix":
        return b"unix:" + session.client.address.removesuffix(":0").encode()
    return session.client.address.encode() or session.client.kind.encode()
