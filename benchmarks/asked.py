"""What the command line of a benchmark asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Asked(NamedTuple):
    """How many rounds, of how many seconds, of which rows (all where no text is given)."""

    rounds: int = 5
    seconds: float = 2.0
    texts: Sequence[str] = ()

    def wants(self, name: str) -> bool:
        """Whether a row of this name is to be measured: one of the texts stands in it.

        >>> Asked(texts=["xadd"]).wants("XADD 2 fields")
        True
        """
        return not self.texts or any(text.lower() in name.lower() for text in self.texts)
