"""One client of a node: what it sent, what it will get, what it said about itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.commands.call import Call
from headwater.commands.dispatch import KnownCommand
from headwater.resp.arguments import Arguments
from headwater.resp.scanner import Scanner
from headwater.server.session.client_info import ClientInfo
from headwater.server.session.output import Output
from headwater.server.session.output_budget import OutputBudget
from headwater.server.session.subscriptions import Subscriptions
from headwater.server.session.transaction import Transaction

if TYPE_CHECKING:
    from headwater.server.session.user import User


class Session:
    """A connection's state. Made by `Node.connect`, ended by `Node.close_session`.

    Its commands run in ``call``, which has a reply of its own.
    """

    def __init__(
        self,
        session_id: int,
        client: ClientInfo,
        call: Call,
        budget: OutputBudget,
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
        self.output = Output(call.reply, budget)
        self.subscriptions = Subscriptions()
        self.transaction = Transaction()
        self.last: KnownCommand | None = None
        """The last command that it has sent."""
        self.authenticated = self.closed = False
        self.closing = False
        """Close the connection once what is released has been sent."""
        self.blocked = False
        """Its further requests wait for the end of a command."""
        self.reply_mode = "on"
        """``on``, ``off`` or ``skip`` (the next reply): CLIENT REPLY."""
        self.spent_ns = 0
        """How long the command that this client waits in had run before."""
        self.wrote_turn = 0
        """The last turn in which this client changed anything."""
        self.postponed: Arguments | None = None
        """The request that CLIENT PAUSE held up, to be run before what came after it."""
        self.driver: Any = None
        """Whatever drives this session may keep its own state here."""

    @property
    def last_command(self) -> str:
        """The name of the last command, empty before the first."""
        return "" if self.last is None else self.last.title

    @property
    def resp(self) -> int:
        """Version of the protocol that this client reads: 2 or 3."""
        return self.output.reply.resp

    @resp.setter
    def resp(self, version: int) -> None:
        self.output.reply.resp = version

    @property
    def db_index(self) -> int:
        """Number of the selected database."""
        return self.call.db.index

    @db_index.setter
    def db_index(self, index: int) -> None:
        self.call.db = self.call.keyspace.databases[index]

    @property
    def let_in(self) -> bool:
        """Whether it may run commands: it has authenticated, or nobody has to."""
        return self.scanner.authenticated

    def log_in(self, user: User, *, authenticated: bool, let_in: bool) -> None:
        """Be this user from now on. ``authenticated`` when it has shown so, or needed not to; ``let_in``
        when it may run commands."""
        self.user = user
        self.authenticated = authenticated
        self.scanner.authenticated = let_in

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take input; the next turn runs it."""
        self.scanner.feed(data)

    def tell(self) -> None:
        """Its driver hears that there is output, or the end."""
        if self.on_output is not None:
            self.on_output(self)

    def rest(self) -> None:
        """The client has been silent for a while: room that is not used is given back."""
        self.scanner.rest()
        self.output.rest()

    def input_bytes(self) -> int:
        """What this client has sent that has not run, MULTI's queue included."""
        return self.scanner.unread() + self.transaction.queued_bytes()

    def memory_bytes(self) -> int:
        """What its buffers take, with the room in them, and what it has not taken yet."""
        read: int = self.scanner.buffer.__alloc__()
        return read + self.output.memory_bytes() + self.transaction.queued_bytes()
