"""How much memory all sessions together may keep for large answers."""

from __future__ import annotations

OUTPUT_BUDGET_BYTES = 16 * 1024 * 1024


class OutputBudget:
    """What is left of it; one for each node."""

    def __init__(self) -> None:
        self.free_bytes = OUTPUT_BUDGET_BYTES
