"""A client's transaction: what it watches, and what it has sent since MULTI, kept for EXEC.

    wire       *3␍␊$3␍␊SET…  │ *2␍␊$4␍␊INCR…  │ …     the requests, canonically encoded, back to back
    commands   SET             INCR             …     what each asks for, looked up when it was queued

Rule 1. A queued command costs its bytes and one pointer, no object of its own: 100,000 of them are one
        buffer, which is freed at once.
Rule 2. ``size`` counts both and is a part of the client's input (client-query-buffer-limit), as in
        Redis 7 and later.
Rule 3. The requests are read once, in order, by `begin` and `next`; after `begin` nothing is added.
"""

from __future__ import annotations

import sys

from headwater.commands.dispatch import KnownCommand
from headwater.resp.arguments import Arguments
from headwater.resp.scanner import Scanner
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

    def __init__(self) -> None:
        self.commands: list[KnownCommand] = []
        self.size = 0
        """Bytes that the queue takes."""
        self.writes = False
        """Whether one of the commands may write."""
        self._wire = bytearray()
        self._scanner: Scanner | None = None

    def __len__(self) -> int:
        return len(self.commands)

    def add(self, known: KnownCommand, arguments: Arguments) -> None:
        """Queue a request that asks for ``known``."""
        assert self._scanner is None, "the queue is being read"
        arguments.append_to(self._wire)
        self.commands.append(known)
        self.writes = self.writes or known.writes
        self.size = len(self._wire) + _POINTER_BYTES * len(self.commands)

    def begin(self) -> None:
        """The requests are read from here on. Their lengths were checked when they came."""
        self._scanner = Scanner(max_bulk_bytes=sys.maxsize)
        self._scanner.adopt(self._wire)

    def next(self, arguments: Arguments) -> bool:
        """Put the next request into ``arguments``, valid until the queue goes; False after the last."""
        assert self._scanner is not None, "begin() comes first"
        return self._scanner.next(arguments)


class Transaction:
    """Part of a session."""

    def __init__(self) -> None:
        self.queue: TransactionQueue | None = None
        """Commands since MULTI; None outside of a transaction."""
        self.failed = False
        """A command could not be queued, so EXEC is refused."""
        self.watch = Watch()

    def end(self) -> None:
        """Forget the queue; `Watches.end` forgets what is watched."""
        self.queue = None
        self.failed = False

    def queued_bytes(self) -> int:
        """What the queue takes."""
        return 0 if self.queue is None else self.queue.size
