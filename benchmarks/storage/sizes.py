"""How much a run measures: rounds, seconds, and sizes that are all proportional to one number of entries."""

from __future__ import annotations

from typing import Final, NamedTuple

MIB: Final = 2**20
MILLION: Final = 1_000_000

ENTRY_BYTES: Final = 150
"""The names and values of one entry of `benchmarks.workloads.FIELDS_5`."""

DEFAULT_HOT_BYTES: Final = 256 * MIB
"""The server's default of ``stream-hot-bytes``."""

HUGE_TIMES: Final = 100
SCALED_TIMES: Final = 2
ANYWHERE_TIMES: Final = 10
COLD_TIMES: Final = 20

ANYWHERE_SMALL: Final = 10_000
LEAST_STARTS: Final = 10
LEAST_HOT_BYTES: Final = 64 * 1024


class Sizes(NamedTuple):
    """The sizes of a run. With a million ``entries`` they are those of the table of required values.

    >>> Sizes().tail_bytes // MIB, Sizes().huge_entries, Sizes(entries=20_000).anywhere_entries
    (64, 100000000, 200000)
    """

    rounds: int = 5
    seconds: float = 2.0
    entries: int = MILLION
    minutes: float = 2.0

    @property
    def starts(self) -> int:
        """How often a server is started in an empty directory."""
        return max(LEAST_STARTS, self.rounds)

    @property
    def tail_bytes(self) -> int:
        """The journal that is replayed after a SIGKILL."""
        return 64 * MIB * self.entries // MILLION

    @property
    def huge_entries(self) -> int:
        """The entries of the row that does not fit in memory."""
        return HUGE_TIMES * self.entries

    @property
    def scaled_entries(self) -> int:
        """The entries of the row that stands for it in a normal run."""
        return SCALED_TIMES * self.entries

    @property
    def scaled_hot_bytes(self) -> int:
        """``stream-hot-bytes`` of that row: the default, scaled as the number of entries is."""
        share = self.scaled_entries / (HUGE_TIMES * MILLION)
        return max(LEAST_HOT_BYTES, int(DEFAULT_HOT_BYTES * share))

    @property
    def replayed_entries(self) -> int:
        """The entries of the rows that execute and replay in process."""
        return self.entries // 5

    @property
    def hot_bytes(self) -> int:
        """``stream-hot-bytes`` of the rows with cold data."""
        return max(LEAST_HOT_BYTES, 8 * MIB * self.entries // MILLION)

    @property
    def cold_entries(self) -> int:
        """The entries of a stream of `COLD_TIMES` times `hot_bytes`."""
        return COLD_TIMES * self.hot_bytes // ENTRY_BYTES

    @property
    def anywhere_entries(self) -> int:
        """The entries of the large stream of the row of growth."""
        return ANYWHERE_TIMES * self.entries

    @property
    def anywhere_small(self) -> int:
        """The entries of the small stream of the row of growth."""
        return min(ANYWHERE_SMALL, self.anywhere_entries // 10)
