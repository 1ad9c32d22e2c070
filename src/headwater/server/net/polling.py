"""Waits for ready sockets, in one system call.

Compiled modules use the function in ``polling_c.pxd``, which passes the descriptor of the epoll object to the
system and creates no object per event. Plain Python uses the function below, which does the same.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from select import epoll

MOST_EVENTS = 256
"""Maximum number of ready sockets that the C version returns."""


def wait_ready(poll: epoll, _descriptor: int, seconds: float, ready: array[int]) -> int:
    """Wait at most ``seconds`` until a socket is ready. Return the number of ready sockets, at most `MOST_EVENTS`
    and at most the number that fits into ``ready``. Each takes two words of ``ready``: the descriptor and its
    events (EPOLLIN and so on).

    Raises `OSError`.
    """
    found = poll.poll(seconds, min(MOST_EVENTS, len(ready) // 2))
    for at, (descriptor, events) in enumerate(found):
        ready[2 * at] = descriptor
        ready[2 * at + 1] = events
    return len(found)
