"""A client that several tasks or threads share. The last user closes it.

Rule 1. A client is retired once. After that, no task or thread begins to use it.
Rule 2. The last user of a retired client closes it. So closing an app does not break a connection that another
        task or thread uses.
"""

from __future__ import annotations

from typing import Generic, TypeVar

C = TypeVar("C")


class SharedClient(Generic[C]):
    """``client``, the address ``place`` that it uses, and the number of its users. This class has no
    lock, because the publisher uses it in one event loop, or with its own lock."""

    __slots__ = ("client", "place", "retired", "users")

    def __init__(self, client: C, place: str) -> None:
        self.client = client
        self.place = place
        self.users = 0
        self.retired = False

    def acquire(self) -> C:
        """Return the client for use until `release`."""
        self.users += 1
        return self.client

    def release(self) -> bool:
        """End the use. Return whether the caller must close the client."""
        self.users -= 1
        return self.retired and not self.users

    def retire(self) -> bool:
        """Retire the client. Return whether the caller must close it; otherwise its last user will."""
        self.retired = True
        return not self.users
