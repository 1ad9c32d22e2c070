"""Which sockets are ready, in one system call.

Compiled modules take this function from ``polling_c.pxd``, which asks the system by the descriptor of the
epoll and makes no object for an event; plain Python takes the twin below.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from select import epoll

MOST_EVENTS = 256
"""What the twin in C has room for."""


def wait_ready(poll: epoll, _descriptor: int, seconds: float, ready: array[int]) -> int:
    """Wait until a socket is ready, ``seconds`` at most; how many there are, as many as ``ready`` has
    room for and `MOST_EVENTS` at most. It gets two words for each: the descriptor and what it is
    ready for (EPOLLIN and so on).

    Raises `OSError`.
    """
    found = poll.poll(seconds, min(MOST_EVENTS, len(ready) // 2))
    for at, (descriptor, events) in enumerate(found):
        ready[2 * at] = descriptor
        ready[2 * at + 1] = events
    return len(found)
