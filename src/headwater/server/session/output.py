"""The output of one client: replies and messages, before and after the commit that releases them.

Commands write into ``outbox``, which is not visible to the client. A commit moves it to
``released``, from where `take` passes it on.
"""

from __future__ import annotations

from headwater.commands.reply_tail import ReplyTail
from headwater.resp.replies import ReplyWriter

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # compiled modules use memory_c.pxd
    from headwater.native.memory import cut, empty

_KEPT_BYTES = 16 * 1024
"""Capacity that each buffer may always retain, in bytes. `Output.rest` frees it when the client is silent."""


OUTPUT_BUDGET_BYTES = 16 * 1024 * 1024
"""Maximum number of bytes of empty output buffers that all sessions together may retain for large replies."""


class ClientMemory:
    """The memory of a node's clients, in bytes. Owners update ``held_bytes`` when their memory changes."""

    def __init__(self) -> None:
        self.free_bytes = OUTPUT_BUDGET_BYTES
        """The unused part of the budget for output buffers."""
        self.held_bytes = 0
        """Memory of queues of MULTI, watched keys, names of subscriptions, and keys of blocked clients, without
        the tables."""


class Output:
    """The output buffers of a session. ``reply`` writes into the outbox. ``memory`` has the budget that sessions share."""

    def __init__(self, reply: ReplyWriter, memory: ClientMemory) -> None:
        self.reply = reply
        self.outbox, self.released = reply.out, bytearray()
        self.pushes = bytearray()
        """Messages that the current command sends to its own client, and all messages while there is a ``tail``.
        The messages follow the reply."""
        self.released_bytes = self.taken_bytes = 0
        """Numbers of bytes since the start. A commit counts ``released_bytes``; the code that sends the
        output counts ``taken_bytes``."""
        self.tail: ReplyTail | None = None
        """The rest of a reply that is written in pieces; else None. All later output follows it."""
        self.stalled = False
        """True if requests wait until the client has taken earlier replies."""
        self.changed = False
        """True if the session is in `Clients.changed`."""
        self.shown_turn = -1
        """Number of the last turn in which the output may show changes, which replicas may not have yet."""
        self.held = 0
        """Number of turns whose output is held back until replicas have what it shows."""
        self._memory = memory
        self._kept_bytes = _KEPT_BYTES
        """Capacity that the outbox and the released buffer may each retain, in bytes."""
        self._closed = False

    @property
    def unsent(self) -> int:
        """Number of bytes that were released and that the client has not taken."""
        return self.released_bytes - self.taken_bytes

    def takes_more(self, ahead_bytes: int) -> bool:
        """Return whether more may be written for a client that may leave ``ahead_bytes`` unread. While a reply is
        written in pieces, the limit is at most one piece: the rest of the reply waits without being copied."""
        if self.tail is not None:
            ahead_bytes = min(ahead_bytes, self.reply.piece_bytes)
        return self.released_bytes - self.taken_bytes + len(self.outbox) <= ahead_bytes

    def release(self) -> bool:
        """Release the written output, which is now durable. Return whether any output can be taken."""
        if self.outbox:
            self.released_bytes += len(self.outbox)
            if self.released:
                self.released += self.outbox
                self.outbox.clear()
            else:
                self.released, self.outbox = self.outbox, self.released
                self.reply.out = self.outbox
        return bool(self.released)

    def release_to(self, position: int) -> None:
        """Release the output up to byte ``position``, counted since the start like ``released_bytes``."""
        count = position - self.released_bytes
        if count >= len(self.outbox):
            self.release()
        elif count > 0:
            self.released += self.outbox[:count]
            del self.outbox[:count]
            self.released_bytes += count

    def take(self) -> bytearray:
        """Return all released bytes. The caller owns them, and must add to ``taken_bytes`` as the client takes
        them."""
        taken, self.released = self.released, bytearray()
        return taken

    def take_bytes(self) -> bytes:
        """Return a copy of all released bytes and count them as taken."""
        taken = cut(self.released, 0, len(self.released))
        self.taken_bytes += len(taken)
        self.empty_released()
        return taken

    def empty_released(self) -> None:
        """Remove all released bytes. The buffer retains its capacity if that is small, or if the shared
        budget allows it."""
        size = len(self.released)
        if size <= self._kept_bytes or self._may_keep(size):
            empty(self.released)
        else:
            self.released = bytearray()

    def keep_tail(self) -> None:
        """Keep the rest of the reply that the current command has written."""
        reply = self.reply
        self.tail, reply.tail, reply.out = reply.tail, None, self.outbox

    def discard(self, mark: int) -> None:
        """Discard the output of the current command: the outbox from ``mark`` on, and the tail."""
        self.keep_tail()
        self.tail = None
        del self.outbox[mark:]

    def write_piece(self) -> None:
        """Write the next piece of the reply, and after the last one the messages that waited. Raises
        `ColdBlocks` and `headwater.errors.JournalDamaged`, as `ReplyTail.write`."""
        assert self.tail is not None
        if self.tail.write(self.reply):
            self.tail = None
            self.deliver_pushes()

    def messages(self, *, executing: bool) -> bytearray:
        """Return the buffer for a message. The message follows the reply of the current command if this session is
        ``executing`` it, and the rest of an earlier reply."""
        return self.pushes if executing or self.tail is not None else self.outbox

    def deliver_pushes(self) -> None:
        """Append the waiting messages to the outbox, unless the rest of a reply comes first."""
        if self.tail is None:
            self.outbox += self.pushes
            self.pushes.clear()

    def rest(self) -> None:
        """Free unused capacity; called when the client has been silent for a while."""
        if not self.outbox and not self.released:
            self.outbox, self.released = bytearray(), bytearray()
            self.reply.out = self.outbox
            self._give_back()

    def close(self) -> None:
        """Retain no capacity and no tail from now on; called when the session is closed."""
        self._closed = True
        self.tail = None
        self._give_back()

    def memory_bytes(self) -> int:
        """Return the memory of the buffers with their spare capacity, and the untaken output."""
        capacity: int = self.outbox.__alloc__() + self.released.__alloc__()
        capacity += self.pushes.__alloc__()
        return capacity + max(0, self.unsent - len(self.released))

    def _may_keep(self, size: int) -> bool:
        """Return whether the buffers may retain capacity for replies of this size. Without that capacity, each
        reply would allocate its pages again, which takes longer than to write and send it."""
        more = 2 * (size - self._kept_bytes)  # two buffers alternate
        if self._closed or more > self._memory.free_bytes:
            return False
        self._memory.free_bytes -= more
        self._kept_bytes = size
        return True

    def _give_back(self) -> None:
        self._memory.free_bytes += 2 * (self._kept_bytes - _KEPT_BYTES)
        self._kept_bytes = _KEPT_BYTES
