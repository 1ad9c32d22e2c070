"""The clients of a node: their sessions, their limits, and those with output from the current turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING

from headwater.commands.call import Call, StreamSettings
from headwater.config.config import Config
from headwater.server.session.client_info import ClientInfo
from headwater.server.session.output import ClientMemory
from headwater.server.session.session import Session
from headwater.server.session.user import User

if TYPE_CHECKING:
    import ssl


class Clients:
    """The open sessions by id, in the order in which they were opened."""

    def __init__(self, config: Config) -> None:
        self.sessions: dict[int, Session] = {}
        self.connections_seen = 0
        """Number of sessions opened so far."""
        self.changed: list[Session] = []
        """Sessions to which the current turn has written."""
        self.memory = ClientMemory()
        self.output_ahead_bytes = 0
        """Number of unsent bytes of replies above which the requests of a session wait."""
        self.query_buffer_limit = 0
        self.tls: ssl.SSLContext | None = None
        """The TLS context of new connections; None without a TLS listener."""
        self.settings = StreamSettings(config)
        """The settings of streams, for the commands of all sessions."""
        self._max_bulk_bytes = 0
        self._ids = count(1)

    def configure(self, config: Config) -> None:
        """Apply settings, to open sessions too."""
        self.settings.adopt(config)
        self.output_ahead_bytes = config.output_ahead_bytes
        self.query_buffer_limit = config.client_query_buffer_limit
        if config.proto_max_bulk_len != self._max_bulk_bytes:
            self._max_bulk_bytes = config.proto_max_bulk_len
            for session in self.sessions.values():
                session.scanner.max_bulk_bytes = self._max_bulk_bytes

    def connect(
        self,
        client: ClientInfo,
        call: Call,
        *,
        user: User,
        on_output: Callable[[Session], None] | None,
    ) -> Session:
        """Open a session. Its commands run in ``call``."""
        session = Session(
            next(self._ids), client, call, self.memory, user=user, on_output=on_output
        )
        session.scanner.max_bulk_bytes = self._max_bulk_bytes
        self.sessions[session.id] = session
        self.connections_seen += 1
        return session

    def close(self, session: Session) -> None:
        """Forget a session and give back its share of the output budget."""
        session.closed = True
        self.sessions.pop(session.id, None)
        session.output.close()

    def memory_bytes(self) -> int:
        """Return the memory of all sessions, without `ClientMemory.held_bytes`."""
        return sum([one.memory_bytes() for one in self.sessions.values()])

    def wrote_to(self, session: Session) -> None:
        """Note that a session has output or is to be closed, to notify its driver after the commit."""
        if not session.output.changed:
            session.output.changed = True
            self.changed.append(session)

    def discard_output(self) -> None:
        """Discard the output of the current turn, and close every session."""
        self.changed = []
        self.discard(self.sessions.values())

    def discard(self, sessions: Iterable[Session]) -> None:
        """Discard the output of ``sessions`` that is not released, and close them."""
        for session in sessions:
            session.output.changed = False
            session.output.discard(0)
            session.output.pushes.clear()
            session.closing = True
