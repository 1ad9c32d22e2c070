"""The clients that a change of a key concerns: those that wait for the key, and those that WATCH it.

Streams and groups report their changes here; `headwater.engine.keyspace.database.Database` extends it.
"""

from __future__ import annotations

from headwater.engine.shared.keyspace_state import KeyspaceState


class KeySignals:
    """The keys of database number ``index`` that clients wait for or watch."""

    def __init__(self, keyspace: KeyspaceState, index: int) -> None:
        self.keyspace = keyspace
        self.index = index
        self.awaited: dict[bytes, None] = {}
        """Keys that blocked clients wait for, ordered by the first wait. Maintained by the server."""
        self.watched: dict[bytes, None] = {}
        """Keys that clients watch, ordered by the first WATCH. Maintained by the server."""

    def signal(self, key: bytes) -> None:
        """Report a change of ``key`` that may end a wait."""
        if self.awaited and key in self.awaited:
            self.keyspace.signalled[self.index, key] = None

    def touch(self, key: bytes) -> None:
        """Report a modification of ``key`` in the sense of WATCH."""
        if self.watched and key in self.watched:
            self.keyspace.touched[self.index, key] = None
