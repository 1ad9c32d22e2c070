"""Statistics of checkpoints for INFO and LASTSAVE, in Redis's terms."""

from __future__ import annotations

SAVE, REWRITE = "save", "rewrite"
"""Causes of a checkpoint: SAVE and BGSAVE, or BGREWRITEAOF and the growth of the journal. All of them write the
same image."""


class CheckpointStatistics:
    """Statistics of a node's checkpoints. ``last_save`` is in Unix seconds; ``now`` is monotonic, in seconds."""

    def __init__(self, opened: int) -> None:
        self.requested = ""
        """`SAVE` or `REWRITE` if a checkpoint was requested and has not begun, else empty."""
        self.current = ""
        """`SAVE` or `REWRITE` while a checkpoint is being written, else empty."""
        self.last_save = opened
        """Time of the last image; before the first one, the time when the store was opened."""
        self.last_seconds = -1
        self.last_succeeded = True
        self.images = 0
        """Number of images that were written since the store was opened."""
        self.changes_begun = 0
        """`Keyspace.dirty` when the current checkpoint was begun."""
        self.changes_saved = 0
        """`Keyspace.dirty` of the state in the last image."""
        self._began = 0.0

    def begin(self, now: float) -> None:
        """Record that a checkpoint begins."""
        self.current, self.requested = self.requested or REWRITE, ""
        self._began = now

    def succeed(self, now: float, wall: int) -> float:
        """Record that the current checkpoint has succeeded. Return its duration in seconds."""
        took = self._end(now)
        self.last_succeeded, self.last_save = True, wall
        self.changes_saved = self.changes_begun
        self.images += 1
        return took

    def fail(self, now: float) -> None:
        """Record that the current checkpoint has failed."""
        self._end(now)
        self.last_succeeded = False

    def seconds(self, now: float) -> int:
        """Return the time for which the current checkpoint has run, in seconds; -1 if none runs."""
        return int(now - self._began) if self.current else -1

    def _end(self, now: float) -> float:
        took = now - self._began
        self.current, self.last_seconds = "", int(took)
        return took
