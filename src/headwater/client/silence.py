"""Measures how long a connection has been silent. The deadlines of guarded connections count only silence.

Rule 1. A deadline has passed when no byte has moved in either direction for that long. The system knows the bytes
        that the peer has acknowledged, and those that have arrived. So a large command or a large reply may take
        the time that the network needs.
Rule 2. A peer that has acknowledged a part of a large command may still be passing it on, as proxies do. The peer
        has one more second for every `PASSED_ON` bytes.
Rule 3. The total time is limited: a transfer that moves fewer than `SLOWEST` bytes a second ends after
        `MOST_DEADLINES` deadlines.
Rule 4. Time in which this process did not run does not count. A thread checks a connection only while nothing
        arrives, so in threads rule 3 does not limit a peer that sends a byte between any two checks.
Rule 5. If the system does not report these bytes (unix sockets, systems other than Linux), the deadline is for the
        whole command, or for the next bytes of a reply.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final

LARGE: Final = 64 * 1024
"""Minimum size in bytes of a command whose writing has a deadline (asyncio). Smaller commands fit into buffers."""

LOOKS: Final = 4
LONGEST_PAUSE: Final = 0.75
"""Number of checks of a connection within a deadline, and longest pause between two checks, in seconds."""

MOST_DEADLINES: Final = 10
SLOWEST: Final = 1_000
PASSED_ON: Final = 1_000_000
"""The limits of rules 2 and 3; `SLOWEST` and `PASSED_ON` are in bytes per second."""

_COUNTS: Final = struct.Struct("=120xQQ")
"""The beginning of `tcp_info`: the fields ``tcpi_bytes_acked`` and ``tcpi_bytes_received`` (Linux 4.1, tcp.h)."""


def _moved(sock: Any) -> tuple[int, int] | None:
    """Return the number of bytes that the peer has acknowledged, and of bytes that have arrived. Return None if the
    system does not report them."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS.size)
    except (OSError, AttributeError):
        return None
    if len(info) < _COUNTS.size:
        return None
    sent, received = _COUNTS.unpack(info)
    return sent, received


def pause_of(deadline: float) -> float:
    """Return the seconds between two checks of a connection."""
    return min(deadline / LOOKS, LONGEST_PAUSE)


class Silence:
    """The silence of ``sock`` during a command of ``size`` bytes and its reply."""

    def __init__(self, sock: Any, *, size: int = 0) -> None:
        self._sock = sock
        self._size = size
        self._began = self._moved_at = self._due = self._flows_at = 0.0
        self._last: tuple[int, int] | None = None
        self._said = False
        self._first = _moved(sock) if size or PROGRESS.get() is not None else None

    def begin(self, deadline: float, wait: float, *, ago: float = 0.0) -> float:
        """Begin to write the command or to wait for a reply, or record that either began ``ago`` seconds ago. Return
        the seconds until `look` must be called."""
        self._began = self._moved_at = monotonic() - ago
        self._last = None
        pause = wait + pause_of(deadline)
        if (progress := PROGRESS.get()) is not None:
            progress.of = self
            # So a large reply is noticed while its command might still block.
            pause = min(pause, LONGEST_PAUSE)
        self._due = self._began + pause
        return pause

    def look(self, deadline: float, wait: float) -> float:
        """Check the connection. Return the seconds until the next check; 0 if the deadline has passed: ``deadline``
        seconds of silence after the ``wait`` seconds that the command may block."""
        now = monotonic()
        late = now - self._due
        if late > pause_of(deadline):
            # Either the process did not run, or this is a thread that was receiving bytes until now.
            self._began += late
            self._moved_at += late
        found = _moved(self._sock)
        if self._last is not None and found != self._last:
            self._moved_at = now
            self._flows_at = self._flows_at or now
        self._first, self._last = self._first or found, found
        self._report(deadline)
        sent, received = self._since_first(found)
        over = self._moved_at + wait + deadline + sent / PASSED_ON
        longest = self._began + wait + MOST_DEADLINES * deadline + (sent + received) / SLOWEST
        pause = LONGEST_PAUSE if now < self._began + wait else pause_of(deadline)
        pause = max(0.0, min(over - now, longest - now, pause))
        self._due = now + pause
        return pause

    def _report(self, deadline: float) -> None:
        """Call `TransferProgress.slow` once, if bytes have moved for longer than a deadline."""
        progress = PROGRESS.get()
        if progress is None or self._said or not self._flows_at:
            return
        if monotonic() - self._flows_at > deadline:
            self._said = True
            progress.slow(self)

    @property
    def size(self) -> int:
        """The size of the command in bytes; 0 if it is small."""
        return self._size

    @property
    def sent(self) -> int:
        """Number of bytes of a large command that the peer has acknowledged."""
        return self._since_first(_moved(self._sock))[0]

    @property
    def received(self) -> int:
        """Number of bytes of the reply that have arrived."""
        return self._since_first(_moved(self._sock))[1]

    @property
    def moved_at(self) -> float:
        """Time when bytes were last seen to move, or waiting began, by the monotonic clock in seconds."""
        return self._moved_at

    def _since_first(self, now: tuple[int, int] | None) -> tuple[int, int]:
        first = self._first
        if now is None or first is None:
            return 0, 0
        return min(self._size, now[0] - first[0]), now[1] - first[1]


class TransferProgress:
    """The current transfer of a task's connection, for reports. ``slow`` is called once for each transfer that
    takes longer than a deadline."""

    def __init__(self, slow: Callable[[Silence], None] = lambda _silence: None) -> None:
        self.of: Silence | None = None
        self.slow = slow

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the commands that this task sends within the block."""
        token = PROGRESS.set(self)
        try:
            yield
        finally:
            PROGRESS.reset(token)
            self.of = None


PROGRESS: ContextVar[TransferProgress | None] = ContextVar("progress", default=None)
