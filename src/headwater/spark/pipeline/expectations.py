"""Checks the expectations on a table's rows, batch by batch: counts violations and acts on them.

Rule 1. A predicate whose result is NULL does not hold. A value that did not fit its column is null, so
        ``price > 0`` does not hold for a price that could not be read.
Rule 2. A batch is computed once and cached while its rows are counted and written.
Rule 3. ``fail`` takes effect before any row of the batch is written. The quarantine is written before the
        table, with the same batch number, so a replayed batch duplicates rows in neither.
Rule 4. A row that should be both dropped and quarantined is quarantined, whatever the order of expectations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.errors import ExpectationFailed
from headwater.spark.pipeline.declaration.model import Expectation, Table
from headwater.spark.pipeline.sinks import THERE_ALREADY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FLAGS: Final = "_expectations"
"""The column of a quarantine with the names of the expectations that a row violates."""

Write = Callable[["DataFrame"], int]


class WriteOutcome(NamedTuple):
    """The result of writing a batch.

    ``rows`` is the number of rows added to the table, or `THERE_ALREADY` if the table already had the batch.
    ``violations`` counts rows by expectation, and omits expectations that no row violates.
    """

    rows: int
    violations: dict[str, int] = {}  # noqa: RUF012 - never changed
    dropped: int = 0
    quarantined: int = 0


def holds(expectation: Expectation) -> Column:
    """Return a column that is true if a row fulfils the expectation, and otherwise false, never null."""
    from pyspark.sql import functions as f

    return f.coalesce(f.expr(expectation.predicate).cast("boolean"), f.lit(False))


def passed(frame: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    """Return the rows that the table keeps, which are also the rows that other tables read.

    A row that violates an expectation with the action ``fail`` makes any query that reads this frame fail.
    """
    from pyspark.sql import functions as f

    for expectation in expectations:
        if expectation.action in {"drop", "quarantine"}:
            frame = frame.where(holds(expectation))
        elif expectation.action == "fail":
            said = f"expectation {expectation.name!r} ({expectation.predicate}) does not hold"
            frame = frame.where(holds(expectation) | f.raise_error(f.lit(said)).isNull())
    return frame


def write_checked(
    frame: DataFrame,
    table: Table,
    *,
    write: Write,
    quarantine: Write | None = None,
    note: Callable[[dict[str, Any]], None] = lambda _counts: None,
) -> WriteOutcome:
    """Write the rows that the table keeps with ``write``, and rows to quarantine with ``quarantine``.

    ``note`` gets the counts before any row is written: ``rows``, ``dropped``, ``quarantined``, and ``violations``
    by expectation. It is not called for a table without expectations.

    Raises `ExpectationFailed` before any row is written.
    """
    if not table.expectations:
        return WriteOutcome(write(frame))
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    kept = _flagged(frame, table.expectations).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = _counts(kept, table.expectations)
        note(counts)
        _fail_any(kept, table.expectations, counts)
        if quarantine is not None and (counts["quarantined"] or table.mode == "complete"):
            quarantine(kept.where(_any_of(table.expectations, "quarantine")))
        held_back = _any_of(table.expectations, "quarantine", "drop")
        rows = write(kept.where(~held_back).drop(f.col(FLAGS)))
    finally:
        kept.unpersist()
    if rows == THERE_ALREADY:
        return WriteOutcome(THERE_ALREADY)
    return WriteOutcome(
        rows=rows,
        violations={
            e.name: counts["violations"][e.name]
            for e in table.expectations
            if counts["violations"][e.name]
        },
        dropped=counts["dropped"],
        quarantined=counts["quarantined"],
    )


def _flagged(frame: DataFrame, expectations: Sequence[Expectation]) -> DataFrame:
    from pyspark.sql import functions as f

    names = [f.when(~holds(e), f.lit(e.name)) for e in expectations]
    return frame.withColumn(FLAGS, f.filter(f.array(*names), lambda name: name.isNotNull()))


def _any_of(expectations: Sequence[Expectation], *actions: str) -> Column:
    """Return a column that is true if a flagged row violates an expectation with one of these actions."""
    from pyspark.sql import functions as f

    names = [f.lit(e.name) for e in expectations if e.action in actions]
    if not names:
        return f.lit(False)
    return f.arrays_overlap(f.col(FLAGS), f.array(*names))


def _counts(kept: DataFrame, expectations: Sequence[Expectation]) -> dict[str, Any]:
    """Count all rows, violations by expectation, and rejected rows, in one pass."""
    from pyspark.sql import functions as f

    quarantined = _any_of(expectations, "quarantine")
    found = kept.agg(
        f.count(f.lit(1)),
        f.count_if(quarantined),
        f.count_if(_any_of(expectations, "drop") & ~quarantined),
        *(f.count_if(f.array_contains(FLAGS, e.name)) for e in expectations),
    ).first()
    assert found is not None, "an aggregate without groups has one row"
    numbers = [int(number) for number in found]
    return {
        "rows": numbers[0],
        "quarantined": numbers[1],
        "dropped": numbers[2],
        "violations": dict(zip((e.name for e in expectations), numbers[3:], strict=True)),
    }


def _fail_any(kept: DataFrame, expectations: Sequence[Expectation], counts: dict[str, Any]) -> None:
    from pyspark.sql import functions as f

    for expectation in expectations:
        count = counts["violations"][expectation.name]
        if expectation.action != "fail" or not count:
            continue
        which = ""
        if "id" in kept.columns:
            example = kept.where(f.array_contains(FLAGS, expectation.name)).select("id").first()
            which = f", one of them with id {example[0]}" if example else ""
        raise ExpectationFailed(
            f"expectation {expectation.name!r} ({expectation.predicate}) does not hold for {count:,} of "
            f"{counts['rows']:,} rows{which}. No row of the batch was written; fix the data or the SQL, "
            "or set the expectation's action to quarantine, drop or keep."
        )
