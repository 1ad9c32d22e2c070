"""A client that many tasks, or many threads, use at a time, and that one of them closes.

Rule 1. A client is retired once: nobody begins to use it afterwards.
Rule 2. The last one that uses a retired client closes it. So whoever leaves an app breaks no connection
        under another's message.
"""

from __future__ import annotations

from typing import Generic, TypeVar

C = TypeVar("C")


class SharedClient(Generic[C]):
    """``client``, the ``place`` to which it leads, and how many use it now. Not locked: the publisher
    is in one event loop, or has a lock."""

    __slots__ = ("client", "place", "retired", "users")

    def __init__(self, client: C, place: str) -> None:
        self.client = client
        self.place = place
        self.users = 0
        self.retired = False

    def acquire(self) -> C:
        """Use it, until `release`."""
        self.users += 1
        return self.client

    def release(self) -> bool:
        """Use it no more. True if the caller must close it."""
        self.users -= 1
        return self.retired and not self.users

    def retire(self) -> bool:
        """Have it closed. True if the caller must do that; else its last user will."""
        self.retired = True
        return not self.users
