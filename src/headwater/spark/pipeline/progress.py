"""The progress of a run: the rows written to its tables, and the tables' lags.

The run's threads update the progress. The terminal, Prometheus or a notebook reads it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from headwater.spark.pipeline.expectations import WriteOutcome
from headwater.spark.pipeline.lag import Lag
from headwater.spark.pipeline.sinks import THERE_ALREADY


@dataclass(frozen=True)
class TableProgress:
    """The progress of one table since the run began."""

    name: str
    """The name of the table."""
    mode: str
    """``"append"``, ``"update"`` or ``"complete"``."""
    rows: int = 0
    """Rows that were added; in mode complete, the rows of the table."""
    batches: int = 0
    """Number of batches that had rows; in mode complete, of rebuilds."""
    seconds: float = 0.0
    """Seconds spent writing."""
    batch: int | None = None
    """The number of the last batch; None in mode complete and before the first batch."""
    batch_rows: int = 0
    """Rows of the last batch."""
    batch_seconds: float = 0.0
    """Seconds that writing the last batch took."""
    dropped: int = 0
    """Rows that expectations dropped."""
    quarantined: int = 0
    """Rows that expectations quarantined."""
    violations: dict[str, int] = field(default_factory=dict)
    """Rows that violate an expectation, by its name."""
    lags: tuple[Lag, ...] = ()
    at: float = 0.0
    """Unix time of the last batch."""

    @property
    def rows_per_second(self) -> float:
        """Rows per second of the last batch; 0 before the first batch."""
        return self.batch_rows / self.batch_seconds if self.batch_seconds else 0.0

    @property
    def entries_behind(self) -> int | None:
        """The number of entries left to read; None if the number is unknown."""
        known = [lag.entries for lag in self.lags]
        return sum(e for e in known if e is not None) if known and None not in known else None

    @property
    def seconds_behind(self) -> float | None:
        """The age, in seconds, of the oldest entry left to read; None if no entry is left."""
        return max((lag.seconds for lag in self.lags if lag.seconds is not None), default=None)


class Progress:
    """The progress of a run; ``progress["sales"]`` is the `TableProgress` of a table. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, TableProgress] = {}

    def tables(self) -> list[TableProgress]:
        """Return the progress of each table at this moment."""
        with self._lock:
            return list(self._tables.values())

    def __getitem__(self, name: str) -> TableProgress:
        with self._lock:
            return self._tables[name]

    def begin(self, name: str, mode: str) -> None:
        """Register a table that the run will make."""
        with self._lock:
            self._tables[name] = TableProgress(name, mode)

    def add(
        self, name: str, outcome: WriteOutcome, seconds: float, *, batch: int | None = None
    ) -> None:
        """Count a written batch or, if ``batch`` is None, a rebuilt table."""
        if outcome.rows == THERE_ALREADY:
            return
        with self._lock:
            before = self._tables[name]
            whole = batch is None
            violations = {} if whole else dict(before.violations)
            for expectation, count in outcome.violations.items():
                violations[expectation] = violations.get(expectation, 0) + count
            self._tables[name] = replace(
                before,
                rows=outcome.rows if whole else before.rows + outcome.rows,
                # Batches without rows are not counted.
                batches=before.batches + (1 if whole or outcome.rows else 0),
                seconds=before.seconds + seconds,
                batch=batch,
                batch_rows=outcome.rows,
                batch_seconds=seconds,
                dropped=outcome.dropped + (0 if whole else before.dropped),
                quarantined=outcome.quarantined + (0 if whole else before.quarantined),
                violations=violations,
                at=time.time(),
            )

    def note_lags(self, name: str, lags: list[Lag]) -> None:
        """Store the lags of a table."""
        with self._lock:
            self._tables[name] = replace(self._tables[name], lags=tuple(lags))


def line_of(name: str, number: int | None, outcome: WriteOutcome, seconds: float) -> str:
    """Describe a batch, or a rebuilt table, in one line."""
    if outcome.rows == THERE_ALREADY:
        return f"{name}: batch {number} was already there, from the previous run"
    parts = [f"{name}: " + (f"batch {number}, " if number is not None else "")]
    parts.append(f"{outcome.rows:,} rows in {seconds:.1f} s")
    if number is not None and seconds:
        parts.append(f" ({outcome.rows / seconds:,.0f} rows/s)")
    if outcome.dropped:
        parts.append(f", {outcome.dropped:,} dropped")
    if outcome.quarantined:
        parts.append(f", {outcome.quarantined:,} quarantined")
    if outcome.violations:
        broken = ", ".join(f"{one} {count:,}" for one, count in outcome.violations.items())
        parts.append(f"; not met: {broken}")
    return "".join(parts)


def lag_text(table: TableProgress) -> str:
    """Describe the lag of a table in words; return an empty string if the table has no lag."""
    if not table.entries_behind and table.seconds_behind is None:
        return ""
    behind = table.entries_behind
    entries = (
        "? entries" if behind is None else f"{behind:,} {'entry' if behind == 1 else 'entries'}"
    )
    age = "" if table.seconds_behind is None else f" ({table.seconds_behind:,.1f} s)"
    return f"{entries} behind{age}"
