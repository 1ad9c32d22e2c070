"""The keys that one client watches (WATCH)."""

from __future__ import annotations

from headwater.engine.shared.keyspace_state import Place


class Watch:
    """The watched keys of a session. `headwater.server.services.watching.Watches` changes them."""

    __slots__ = ("broken", "held_bytes", "keys", "stale")

    def __init__(self) -> None:
        self.broken = False
        self.keys: list[Place] = []
        self.stale: set[Place] = set()
        """Keys that had expired when they were added and were not deleted yet."""
        self.held_bytes = 0
        """Memory of ``keys``, in bytes."""
