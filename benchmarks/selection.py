"""The options of a benchmark's command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Selection(NamedTuple):
    """How many rounds of how many seconds, and which rows: those whose names contain one of ``texts``, or
    all if it is empty."""

    rounds: int = 5
    seconds: float = 2.0
    texts: Sequence[str] = ()

    def wants(self, name: str) -> bool:
        """Return whether to measure the row ``name``.

        >>> Selection(texts=["xadd"]).wants("XADD 2 fields")
        True
        """
        return not self.texts or any(text.lower() in name.lower() for text in self.texts)
