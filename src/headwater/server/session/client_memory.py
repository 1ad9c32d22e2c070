"""The memory that all sessions of a node share, and what they hold besides their buffers."""

from __future__ import annotations

OUTPUT_BUDGET_BYTES = 16 * 1024 * 1024
"""How many bytes of empty output buffers all sessions together may retain for large replies."""


class ClientMemory:
    """The memory of a node's clients, in bytes. Each of the owners updates ``held_bytes`` when it changes."""

    def __init__(self) -> None:
        self.free_bytes = OUTPUT_BUDGET_BYTES
        """The unused part of the budget for output buffers."""
        self.held_bytes = 0
        """Queues of MULTI, watched keys, names of subscriptions, and what blocked clients wait for, without
        the tables."""
