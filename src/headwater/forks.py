"""Whether this process is still the one that opened a store: a child of a fork has none."""

from __future__ import annotations

import os


class Family:
    """How many forks lie between this process and the one that imported this: asked at each turn,
    and cheaper than the process id, which is a system call."""

    def __init__(self) -> None:
        self.generation = 0

    def descend(self) -> None:
        """This is the child."""
        self.generation += 1


FAMILY = Family()
if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=FAMILY.descend)
