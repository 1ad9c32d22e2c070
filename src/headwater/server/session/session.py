"""The server's side of one connection: its input, its output and its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.commands.call import Call
from headwater.commands.dispatch import KnownCommand
from headwater.resp.arguments import Arguments
from headwater.resp.scanner import Scanner
from headwater.server.session.client_info import ClientInfo
from headwater.server.session.output import ClientMemory, Output
from headwater.server.session.subscriptions import Subscriptions
from headwater.server.session.transaction import Transaction
from headwater.server.session.user import User

SESSION_BYTES, TLS_BYTES = 2250, 31_000
"""Bytes per session and its connection, without names and buffers, and for its state in OpenSSL."""


class Session:
    """The state of one connection. `Node.connect` creates it, `Node.close_session` ends it.

    Its commands run in ``call``, which has its own reply.
    """

    def __init__(
        self,
        session_id: int,
        client: ClientInfo,
        call: Call,
        memory: ClientMemory,
        *,
        user: User,
        on_output: Callable[[Session], None] | None,
    ) -> None:
        self.id = session_id
        self.client = client
        self.call = call
        self.user = user
        self.on_output = on_output
        self.scanner = Scanner()
        self.output = Output(call.reply, memory)
        self.subscriptions = Subscriptions()
        self.transaction = Transaction()
        self.last: KnownCommand | None = None
        """The last command that the client sent; None before the first."""
        self.authenticated = self.closed = False
        self.closing = False
        """True if the connection is to be closed once the released output has been sent."""
        self.blocked = False
        """True if further requests wait until a command ends."""
        self.reply_mode = "on"
        """The mode of CLIENT REPLY: ``on``, ``off`` or ``skip`` (the next reply)."""
        self.commands = 0
        """Number of commands that ran for this client, including those of transactions and scripts."""
        self.spent_ns = 0
        """Time for which the blocked command of this client has run so far, in ns."""
        self.wrote_turn = 0
        """Number of the last turn in which this client changed the keyspace."""
        self.postponed: Arguments | None = None
        """Request that CLIENT PAUSE or the wait for blocks on disk has delayed, or None. It runs before later ones."""
        self.driver: Any = None
        """The driver's object for this session, such as its `Connection`. CLIENT LIST shows its counters."""

    @property
    def last_command(self) -> str:
        """The name of the last command; empty before the first."""
        return "" if self.last is None else self.last.title

    @property
    def resp(self) -> int:
        """The version of the protocol that this client uses: 2 or 3."""
        return self.output.reply.resp

    @resp.setter
    def resp(self, version: int) -> None:
        self.output.reply.resp = version

    @property
    def db_index(self) -> int:
        """The number of the selected database."""
        return self.call.db.index

    @db_index.setter
    def db_index(self, index: int) -> None:
        self.call.db = self.call.keyspace.databases[index]

    @property
    def may_run_commands(self) -> bool:
        """True if the client may run commands: it has authenticated, or need not."""
        return self.scanner.authenticated

    def log_in(self, user: User, *, authenticated: bool, may_run_commands: bool) -> None:
        """Set the user and two flags: the client has authenticated (or need not), and it may run commands."""
        self.user = user
        self.authenticated = authenticated
        self.scanner.authenticated = may_run_commands

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Append input. The next turn runs it."""
        self.scanner.feed(data)

    def tell(self) -> None:
        """Notify the driver that the session has output or is to be closed."""
        if self.on_output is not None:
            self.on_output(self)

    def rest(self) -> None:
        """Free unused capacity of buffers; called when the client has been silent for a while."""
        self.scanner.rest()
        self.output.rest()

    def input_bytes(self) -> int:
        """Return the number of bytes received and not executed, including MULTI's queue."""
        return self.scanner.unread() + self.transaction.queued_bytes()

    def memory_bytes(self) -> int:
        """Return the memory of the session: objects, names, tables, the buffers with their spare capacity, and
        the untaken output."""
        size = SESSION_BYTES + (TLS_BYTES if self.client.kind == "tls" else 0)
        size += self.client.names_bytes() + self.subscriptions.tables_bytes()
        return size + self.scanner.memory_bytes() + self.output.memory_bytes()

    def held_bytes(self) -> int:
        """Return the session's part of `ClientMemory.held_bytes`, except for its current wait."""
        held: int = self.transaction.queued_bytes() + self.transaction.watch.held_bytes
        return held + self.subscriptions.held_bytes
