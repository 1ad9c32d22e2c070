"""What opening a store found: the public, read-only result of a recovery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Cut(NamedTuple):
    """A torn tail that was cut off: ``length`` bytes from ``offset`` on, beginning with ``found``."""

    file: str
    """The name of the journal file, without its directory."""
    offset: int
    length: int
    found: str
    """What stood at ``offset``, in words."""

    def __str__(self) -> str:
        return f"{self.file}: cut {self.length} bytes at offset {self.offset}: {self.found}"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What was recovered when a store was opened, and what was odd about it.

    >>> RecoveryReport(groups=3, cuts=(Cut("journal-000001", 200, 30, "a torn record"),)).cut_bytes
    30
    """

    groups: int = 0
    """How many record groups were applied: a command or transaction that changed something is one."""
    cuts: tuple[Cut, ...] = ()
    """Torn tails that were cut off. No fsync had covered them."""
    notes: tuple[str, ...] = ()
    """What was odd about the files and lost nothing that is known of, a sentence each."""

    @property
    def cut_bytes(self) -> int:
        """How many bytes all cuts together took off."""
        return sum(cut.length for cut in self.cuts)
