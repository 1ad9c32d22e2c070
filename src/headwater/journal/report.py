"""What opening a store found: the public, read-only result of a recovery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Cut(NamedTuple):
    """A torn tail of the journal that was cut off when the store was opened. No fsync had covered it."""

    file: str
    """The name of the journal file, without its directory."""
    offset: int
    """Where the cut begins, in bytes."""
    length: int
    """How many bytes were cut off."""
    found: str
    """What was found at ``offset``, in words."""

    def __str__(self) -> str:
        return f"{self.file}: cut {self.length} bytes at offset {self.offset}: {self.found}"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What was recovered when a store was opened, and what was cut off or odd; ``client.recovery`` returns
    it.

    >>> RecoveryReport(groups=3, cuts=(Cut("journal-000001", 200, 30, "a torn record"),)).cut_bytes
    30

    Source: docs/guide/embedded.md, after a crash.
    """

    groups: int = 0
    """How many record groups were applied; each command or transaction that changed something is one."""
    cuts: tuple[Cut, ...] = ()
    """Torn tails that were cut off."""
    notes: tuple[str, ...] = ()
    """What was odd about the files without a known loss, a sentence each."""

    @property
    def cut_bytes(self) -> int:
        """How many bytes were cut off in all."""
        return sum(cut.length for cut in self.cuts)
