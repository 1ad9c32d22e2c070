"""Detects that this process is a fork of the one that opened a store, which a child must not use."""

from __future__ import annotations

import os


class ForkGeneration:
    """The number of forks between the process that imported this module and the current one.

    It is read at each turn, because reading the process id is a system call and takes longer."""

    def __init__(self) -> None:
        self.generation = 0

    def count_fork(self) -> None:
        """Increase the generation. Runs in the child after a fork."""
        self.generation += 1


FORKS = ForkGeneration()
if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=FORKS.count_fork)
