"""What one client watches (WATCH)."""

from __future__ import annotations

from headwater.engine.keyspace_state import Place


class Watch:
    """Part of a session; `headwater.server.services.watching.Watches` changes it."""

    __slots__ = ("broken", "keys")

    def __init__(self) -> None:
        self.broken = False
        self.keys: list[Place] = []
