"""One client of a node: what it sent, what it will get, what it said about itself.

Output is in two parts: ``outbox`` is what commands have written in this turn and nobody may see yet;
`Session.take_output` gives what was released by a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.commands.call import Call
from headwater.commands.dispatch import KnownCommand
from headwater.resp.arguments import Arguments
from headwater.resp.scanner import Scanner
from headwater.server.session.output_room import OutputRoom
from headwater.server.session.subscriptions import Subscriptions
from headwater.server.session.transaction_queue import TransactionQueue
from headwater.server.session.watch import Watch

if TYPE_CHECKING:
    from headwater import _cython as cython
    from headwater.server.session.user import User
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import cut, empty

_KEPT_BYTES = 16 * 1024
"""Room for replies that a busy client keeps; a silent one gives it back (`Session.rest`)."""


class Session:
    """A connection's state. Made by `Node.connect`, ended by `Node.close_session`.

    Its commands run in ``call``, which has a reply of its own. ``kind`` is ``tcp``, ``unix`` or
    ``embedded``; ``address`` and ``local_address`` are what CLIENT LIST shows as ``addr`` and
    ``laddr``.
    """

    def __init__(
        self,
        session_id: int,
        call: Call,
        room: OutputRoom,
        *,
        kind: str,
        address: str,
        local_address: str,
        on_output: Callable[[Session], None] | None,
        user: User,
        now: float,
    ) -> None:
        self.id, self.kind, self.on_output = session_id, kind, on_output
        self.address, self.local_address = address, local_address
        self.scanner = Scanner()
        self.call = call
        self.reply = call.reply
        self.outbox, self.released = call.reply.out, bytearray()
        self._room = room
        self._kept_bytes = _KEPT_BYTES
        """Room that both may keep, each."""
        self.released_bytes = self.taken_bytes = 0
        """Of all output; a turn counts the first, whoever gives it to the client the second."""
        self.pushes = bytearray()
        """Messages that the command under way caused for its own client: they follow its reply."""
        self.subscriptions = Subscriptions()
        self.subscribed = False
        """Whether it listens to anything; kept by `headwater.server.services.pubsub`."""
        self.stalled = False
        """Requests wait until the client has taken what was answered before."""
        self.created = self.last_interaction = now
        self.last: KnownCommand | None = None
        """The last command that it has sent."""
        self.name = self.lib_name = self.lib_version = b""
        self.user = user
        self.authenticated = self.closed = False
        self.closing = False
        """Close the connection once what is released has been sent."""
        self.blocked = False
        """Its further requests wait for the end of a command."""
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
        if self.closed or more > self._room.free_bytes:
            return False
        self._room.free_bytes -= more
        self._kept_bytes = size
        return True

    def give_room_back(self) -> None:
        """Keep no more room than every session may."""
        self._room.free_bytes += 2 * (self._kept_bytes - _KEPT_BYTES)
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
            self.give_room_back()

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

    def end_transaction(self) -> None:
        """Forget MULTI's queue; `Watches.end` forgets what is watched."""
        self.queued = None
        self.queue_failed = False
