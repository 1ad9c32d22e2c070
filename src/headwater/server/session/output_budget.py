"""The memory that all sessions together may retain for large replies."""

from __future__ import annotations

OUTPUT_BUDGET_BYTES = 16 * 1024 * 1024


class OutputBudget:
    """The unused part of the budget. A node has one."""

    def __init__(self) -> None:
        self.free_bytes = OUTPUT_BUDGET_BYTES
