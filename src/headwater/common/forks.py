"""Detects if this process was forked by the process that opened a store: a child must not use that store."""

from __future__ import annotations

import os


class ForkGeneration:
    """The number of forks between the process that imported this module and the current one.

    Each turn compares it with its value when the store was opened, because reading the process id is a system call."""

    def __init__(self) -> None:
        self.generation = 0

    def count_fork(self) -> None:
        """Increase the generation. Runs in the child after a fork."""
        self.generation += 1


FORKS = ForkGeneration()
if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=FORKS.count_fork)
