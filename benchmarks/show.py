"""Prints rows and reports as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.results import Report
from benchmarks.rows import CPU_RATIO, OURS, RATIO, Row
from benchmarks.stores import PEERS

NAME_WIDTH: Final = 42
"""The width of the column with a row's name and unit."""

_COLUMNS: Final = (
    ("peer", 12), ("ours", 12), ("spread", 8), ("p50 µs", 9), ("p99 µs", 9), ("cpu µs", 8),
    ("client", 8), ("ratio", 9), ("by cpu", 8), ("valkey", 9), ("7.0", 9), ("req.", 7), ("goal", 7),
)  # fmt: skip


def head(report: Report) -> None:
    """Print which versions are measured, on which machine, and how often."""
    peers = ", ".join(f"{name} ({version})" for name, version in report["peers"].items())
    found = report["machine"]
    print(
        f"headwater {report['version']} ({report['build']}, {report['commit'][:8]}), peers: {peers}"
    )
    print(f"{found['cpu']}, {found['cores']} cores; load before: {report['load_before']}")
    print(f"median of {report['rounds']} rounds of {report['seconds']} s")


def section(name: str) -> None:
    """Print the head of a section's table."""
    print(f"\n{name:<{NAME_WIDTH}}" + "".join(f"{text:>{width}}" for text, width in _COLUMNS))


def row(found: Row) -> None:
    """Print one line of the table, and below it why it was not measured, or its note."""
    ours, theirs = found.series.get(OURS), found.series.get(found.against)
    ratios = {peer: found.ratios(peer) for peer in (found.against, *PEERS)}
    target = found.target
    values: Sequence[str] = (
        number(theirs.median if theirs and theirs.measurements else None),
        number(ours.median if ours and ours.measurements else None),
        percent(found.as_json()["stores"].get(OURS, {}).get("spread")),
        number(ours.other("p50_us") if ours else None),
        number(ours.other("p99_us") if ours else None),
        number(ours.other("cpu_us") if ours else None),
        percent(ours.other("client_busy") if ours else None),
        number(ratios[found.against].get(RATIO)),
        number(ratios[found.against].get(CPU_RATIO)),
        *(number(ratios[peer].get(RATIO)) for peer in PEERS[1:]),
        number(target.required if target else None),
        number(target.goal if target else None),
    )
    cells = "".join(f"{text:>{width}}" for text, (_, width) in zip(values, _COLUMNS, strict=True))
    print(f"{f'{found.name} {found.unit}':<{NAME_WIDTH}}{cells}  {found.verdict()}", flush=True)
    for text in filter(None, (found.missing, found.note)):
        print(f"{'':<4}{text}", flush=True)


def summary(rows: Sequence[Row]) -> None:
    """Print the number of rows with each verdict."""
    verdicts = [found.verdict() for found in rows]
    counts = {name: verdicts.count(name) for name in dict.fromkeys(verdicts)}
    print("\n" + ", ".join(f"{name}: {count}" for name, count in counts.items()))


def number(value: float | None) -> str:
    """Return a number with three significant digits, from 100 on as an integer; empty for None.

    >>> number(1234567.0), number(12.345), number(0.01234), number(None)
    ('1,234,567', '12.3', '0.0123', '')
    """
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percent(value: float | None) -> str:
    """Return a fraction as percent; empty for None."""
    return "" if value is None else f"{value:.0%}"
