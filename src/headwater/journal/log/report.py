"""The public, read-only result of opening a store: the findings of the recovery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Cut(NamedTuple):
    """A torn tail of the journal that was cut off when the store was opened. No fsync had made it durable."""

    file: str
    """The name of the journal file, without its directory."""
    offset: int
    """Offset at which the cut begins, in bytes."""
    length: int
    """Number of bytes that were cut off."""
    found: str
    """A description of the bytes at ``offset``."""

    def __str__(self) -> str:
        return f"{self.file}: cut {self.length} bytes at offset {self.offset}: {self.found}"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Result of the recovery when a store was opened: the parts that were recovered, cut off or anomalous. It is
    the value of ``client.recovery``.

    >>> RecoveryReport(groups=3, cuts=(Cut("journal-000001", 200, 30, "a torn record"),)).cut_bytes
    30

    Source: docs/guide/embedded.md, after a crash.
    """

    groups: int = 0
    """Number of record groups that were applied. Each command or transaction that changed something is one."""
    cuts: tuple[Cut, ...] = ()
    """Torn tails that were cut off."""
    notes: tuple[str, ...] = ()
    """Anomalies of the files without a known loss, one sentence each."""

    @property
    def cut_bytes(self) -> int:
        """The total number of bytes that were cut off."""
        return sum(cut.length for cut in self.cuts)
