"""What one client will get: replies and messages, before and after the commit that releases them.

``outbox`` is what commands have written in this turn and nobody may see yet; `take` gives what was
released by a commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.resp.replies import ReplyWriter
from headwater.server.session.output_budget import OutputBudget

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import cut, empty

_KEPT_BYTES = 16 * 1024
"""Room for replies that a busy client keeps; a silent one gives it back (`Output.rest`)."""


class Output:
    """Part of a session. ``reply`` writes into the outbox; all sessions share ``budget``."""

    def __init__(self, reply: ReplyWriter, budget: OutputBudget) -> None:
        self.reply = reply
        self.outbox, self.released = reply.out, bytearray()
        self.pushes = bytearray()
        """Messages that the command under way caused for its own client: they follow its reply."""
        self.released_bytes = self.taken_bytes = 0
        """Of all output; a turn counts the first, whoever gives it to the client the second."""
        self.stalled = False
        """Requests wait until the client has taken what was answered before."""
        self.changed = False
        """It is among what the turn under way has written to."""
        self._budget = budget
        self._kept_bytes = _KEPT_BYTES
        """Room that outbox and released may keep, each."""
        self._closed = False

    @property
    def unsent(self) -> int:
        """Bytes that were released and that the client has not taken yet."""
        return self.released_bytes - self.taken_bytes

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

    def take(self) -> bytearray:
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

    def deliver_pushes(self) -> None:
        """The command under way has its reply: what it caused for its own client follows."""
        self.outbox += self.pushes
        self.pushes.clear()

    def rest(self) -> None:
        """The client has been silent for a while: room that is not used is given back."""
        if not self.outbox and not self.released:
            self.outbox, self.released = bytearray(), bytearray()
            self.reply.out = self.outbox
            self._give_back()

    def close(self) -> None:
        """The client is gone: it keeps no room from now on."""
        self._closed = True
        self._give_back()

    def memory_bytes(self) -> int:
        """What the buffers take, with the room in them, and what the client has not taken yet."""
        room: int = self.outbox.__alloc__() + self.released.__alloc__()
        return room + max(0, self.unsent - len(self.released))

    def _may_keep(self, size: int) -> bool:
        """Whether there may be room for answers of this size from now on. Without it each one would ask
        the system for its pages again, which takes longer than to write and to send it."""
        more = 2 * (size - self._kept_bytes)  # two buffers take turns
        if self._closed or more > self._budget.free_bytes:
            return False
        self._budget.free_bytes -= more
        self._kept_bytes = size
        return True

    def _give_back(self) -> None:
        self._budget.free_bytes += 2 * (self._kept_bytes - _KEPT_BYTES)
        self._kept_bytes = _KEPT_BYTES
