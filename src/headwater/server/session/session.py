"""One client of a node: what it sent, what it will get, what it said about itself.

Output is in two parts: ``outbox`` is what commands have written in this turn and nobody may see yet;
`Session.take_output` gives what was released by a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from random import randrange
from typing import TYPE_CHECKING, Any

from headwater.commands.call import Call
from headwater.commands.dispatch import KnownCommand
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter
from headwater.resp.scanner import Scanner
from headwater.server.commands.monitor import stop_monitoring
from headwater.server.log import escaped
from headwater.server.services.acl.access import SUPERUSER
from headwater.server.services.client_log import client_log_of
from headwater.server.services.pubsub import Subscriptions
from headwater.server.services.watching import Watch
from headwater.server.session.transaction_queue import TransactionQueue

if TYPE_CHECKING:
    from headwater import _cython as cython
    from headwater.errors import ProtocolError
    from headwater.server.services.waiting import Waiter
    from headwater.server.session.user import User
    from headwater.server.turn.node import Node
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import cut, empty

_KEPT_BYTES = 16 * 1024
"""Room for replies that a busy client keeps; a silent one gives it back (`Session.rest`)."""
LARGE_ROOM_BYTES = 16 * 1024 * 1024
"""What all sessions together may keep beyond that, on the same terms."""


def _call_of(node: Node, reply: ReplyWriter, *, offloads: bool) -> Call:
    """What a client's commands run in."""
    call = Call(node.keyspace, reply)
    call.offloads = offloads
    call.admission, call.settings, call.draw = node.records.admission, node.settings, randrange
    call.wall = node.times.wall
    return call


class Session:
    """A connection's state. Made by `Node.connect`, ended by `Node.close_session`.

    ``kind`` is ``tcp``, ``unix`` or ``embedded``; ``address`` and ``local_address`` are what CLIENT
    LIST shows as ``addr`` and ``laddr``.
    """

    def __init__(
        self,
        node: Node,
        session_id: int,
        *,
        kind: str,
        address: str,
        local_address: str,
        on_output: Callable[[Session], None] | None,
    ) -> None:
        self.node = node
        self.id = session_id
        self.kind = kind
        self.address = address
        self.local_address = local_address
        self.on_output = on_output
        self.scanner = Scanner()
        self.outbox, self.released = bytearray(), bytearray()
        self._kept_bytes = _KEPT_BYTES
        """Room that both may keep, each."""
        self.reply = ReplyWriter(self.outbox)
        self.call = _call_of(node, self.reply, offloads=kind != "embedded")
        self.released_bytes = self.taken_bytes = 0
        """Of all output; a turn counts the first, whoever gives it to the client the second."""
        self.pushes = bytearray()
        """Messages that the command under way caused for its own client: they follow its reply."""
        self.subscriptions = Subscriptions()
        self.subscribed = False
        """Whether it listens to anything; kept by `headwater.server.services.pubsub`."""
        self.stalled = False
        """Requests wait until the client has taken what was answered before."""
        self.created = self.last_interaction = node.clock.monotonic()
        self.last: KnownCommand | None = None
        """The last command that it has sent."""
        self.name = self.lib_name = self.lib_version = b""
        self.user: User = node.access.default
        self.authenticated = self.closed = False
        self.closing = False
        """Close the connection once what is released has been sent."""
        self.blocked: Waiter | None = None
        self.queued: TransactionQueue | None = None
        """Commands since MULTI; None outside of a transaction."""
        self.queue_failed = False
        self.watch = Watch()
        self.reply_mode = "on"
        """``on``, ``off`` or ``skip`` (the next reply): CLIENT REPLY."""
        self.monitoring = False
        """This client is shown every command that runs (MONITOR)."""
        self.spent_ns = 0
        """How long the command that this client waits in had run before."""
        self.changed = False
        """It is among those that the turn under way has given output to."""
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
        return self.reply.resp

    @resp.setter
    def resp(self, version: int) -> None:
        self.reply.resp = version

    @property
    def db_index(self) -> int:
        """Number of the selected database."""
        return self.call.db.index

    @db_index.setter
    def db_index(self, index: int) -> None:
        self.call.db = self.node.keyspace.databases[index]

    @property
    def let_in(self) -> bool:
        """Whether it may run commands: it has authenticated, or nobody has to."""
        return self.scanner.authenticated

    def log_in(self, user: User, *, authenticated: bool) -> None:
        """Be this user from now on; ``authenticated`` when it has shown so, or needed not to."""
        self.user = user
        self.authenticated = authenticated
        self.scanner.authenticated = authenticated or self.node.access.open

    def log_in_at_first(self) -> None:
        """Be who a new connection is: `default`, and for an embedded one whom no rule binds."""
        if self.kind == "embedded":
            self.log_in(SUPERUSER, authenticated=True)
        else:
            access = self.node.access
            self.log_in(access.default, authenticated=access.open)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take input; the next turn runs it."""
        self.scanner.feed(data)

    def release(self) -> bool:
        """What was written is durable and may be seen; whether there is anything to take."""
        if self.outbox:
            self.released_bytes += len(self.outbox)
            if self.released:
                self.released += self.outbox
                self.outbox.clear()
            else:
                self.released, self.outbox = self.outbox, self.released
                self.reply.out = self.outbox
        return bool(self.released)

    def take_output(self) -> bytearray:
        """All released bytes; they are the caller's now, who counts ``taken_bytes`` up as the client
        takes them."""
        taken, self.released = self.released, bytearray()
        return taken

    def take_bytes(self) -> bytes:
        """All released bytes, a copy; the client has taken them with that."""
        taken = cut(self.released, 0, len(self.released))
        self.taken_bytes += len(taken)
        self.empty_released()
        return taken

    def empty_released(self) -> None:
        """All released bytes were taken; their room stays, if it is small or all clients together have
        little of it."""
        size = len(self.released)
        if size <= self._kept_bytes or self._may_keep(size):
            empty(self.released)
        else:
            self.released = bytearray()

    def _may_keep(self, size: int) -> bool:
        """Whether there may be room for answers of this size from now on. Without it each one would ask
        the system for its pages anew, which takes longer than to write and to send it."""
        more = 2 * (size - self._kept_bytes)  # two buffers take turns
        if self.closed or more > self.node.output_room:
            return False
        self.node.output_room -= more
        self._kept_bytes = size
        return True

    def _give_room_back(self) -> None:
        self.node.output_room += 2 * (self._kept_bytes - _KEPT_BYTES)
        self._kept_bytes = _KEPT_BYTES

    def tell(self) -> None:
        """Its driver hears that there is output, or the end."""
        if self.on_output is not None:
            self.on_output(self)

    @property
    def unsent(self) -> int:
        """Bytes that were released and that the client has not taken yet."""
        return self.released_bytes - self.taken_bytes

    def rest(self) -> None:
        """The client has been silent for a while: room that is not used is given back."""
        self.scanner.rest()
        if not self.outbox and not self.released:
            self.outbox, self.released = bytearray(), bytearray()
            self.reply.out = self.outbox
            self._give_room_back()

    def deliver_pushes(self) -> None:
        """The command under way has its reply: what it caused for its own client follows."""
        self.outbox += self.pushes
        self.pushes.clear()

    def input_bytes(self) -> int:
        """What this client has sent that has not run, MULTI's queue included."""
        return self.scanner.unread() + self.queued_bytes()

    def queued_bytes(self) -> int:
        """What MULTI's queue takes."""
        return 0 if self.queued is None else self.queued.size

    def memory_bytes(self) -> int:
        """What its buffers take, with the room in them, and what it has not taken yet."""
        room = sum(one.__alloc__() for one in (self.scanner.buffer, self.outbox, self.released))
        return room + self.queued_bytes() + max(0, self.unsent - len(self.released))

    def refuse_input(self, error: ProtocolError) -> None:
        """The client sent bytes that are not a request: it gets the error, and the connection ends."""
        self.reply.error(f"ERR {error}")
        self.closing = True
        client_log_of(self.node).warning(
            "client %d (%s) is disconnected: %s", self.id, self.address, escaped(str(error))
        )

    def leave_transaction(self) -> None:
        """Forget MULTI's queue and every WATCH."""
        self.queued = None
        self.queue_failed = False
        self.node.watches.end(self.watch)

    def leave(self) -> None:
        """The client is gone: it waits for nothing, listens to nothing and watches nothing."""
        node = self.node
        self._give_room_back()
        self.leave_transaction()
        stop_monitoring(self, node)
        node.pubsub.leave(self)
        node.pause.forget(self)
        node.access.logins.forget(self)
        node.blocked.forget(self)
