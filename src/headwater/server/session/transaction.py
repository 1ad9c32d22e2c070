"""A client's transaction: the keys that it watches, and the requests since MULTI, queued for EXEC.

    wire       *3␍␊$3␍␊SET…  │ *2␍␊$4␍␊INCR…  │ …     the requests, in canonical encoding, back to back
    commands   SET             INCR             …     their commands, looked up when they were queued

Rule 1. A queued command takes its bytes and one pointer, not an object: 100,000 commands are a
        single buffer, which is freed in one step.
Rule 2. ``size`` counts the bytes and the pointers, as part of the client's input (client-query-buffer-limit), as
        in Redis 7 and later, and immediately as part of the used memory.
Rule 3. `begin` and `next` read the requests once, in order. Nothing is added after `begin`.
"""

from __future__ import annotations

import sys

from headwater.commands.dispatch import KnownCommand
from headwater.resp.arguments import Arguments
from headwater.resp.scanner import Scanner
from headwater.server.session.output import ClientMemory
from headwater.server.session.watch import Watch

_POINTER_BYTES = 8


class TransactionQueue:
    """The requests of one transaction.

    >>> from headwater.commands.dispatch import find_command
    >>> queue, request = TransactionQueue(), Arguments.of(b"incr", b"orders:count")
    >>> queue.add(find_command(request), request)
    >>> len(queue), queue.size, queue.writes
    (1, 41, True)
    >>> queue.begin()
    >>> queue.next(request), request.values()
    (True, [b'incr', b'orders:count'])
    >>> queue.next(request)
    False
    """

    def __init__(self, memory: ClientMemory | None = None) -> None:
        self._memory = memory if memory is not None else ClientMemory()
        self.commands: list[KnownCommand] = []
        self.size = 0
        """Memory of the queue in bytes."""
        self.writes = False
        """True if any of the commands may write."""
        self.enlarges = False
        """True if any of the commands may take more memory."""
        self._wire = bytearray()
        self._scanner: Scanner | None = None

    def __len__(self) -> int:
        return len(self.commands)

    def add(self, known: KnownCommand, arguments: Arguments) -> None:
        """Queue a request of the command ``known``."""
        assert self._scanner is None, "the queue is being read"
        arguments.append_to(self._wire)
        self.commands.append(known)
        self.writes = self.writes or known.writes
        self.enlarges = self.enlarges or known.takes_memory(arguments)
        size = len(self._wire) + _POINTER_BYTES * len(self.commands)
        self._memory.held_bytes += size - self.size
        self.size = size

    def leave(self) -> None:
        """Subtract the queue from the account of its memory, at the end of the transaction."""
        self._memory.held_bytes -= self.size

    def begin(self) -> None:
        """Start to read the requests. Their lengths were checked when they were received."""
        self._scanner = Scanner(max_bulk_bytes=sys.maxsize)
        self._scanner.adopt(self._wire)

    def next(self, arguments: Arguments) -> bool:
        """Put the next request into ``arguments``. They remain valid as long as the queue. Return False after the
        last."""
        assert self._scanner is not None, "call begin() first"
        return self._scanner.next(arguments)


class Transaction:
    """The transaction of a session."""

    def __init__(self) -> None:
        self.queue: TransactionQueue | None = None
        """The commands since MULTI; None outside a transaction."""
        self.failed = False
        """True if a command could not be queued, so EXEC fails."""
        self.watch = Watch()

    def end(self) -> None:
        """Forget the queue. `Watches.end` forgets the watched keys."""
        if self.queue is not None:
            self.queue.leave()
        self.queue = None
        self.failed = False

    def queued_bytes(self) -> int:
        """Return the memory of the queue in bytes."""
        return 0 if self.queue is None else self.queue.size
