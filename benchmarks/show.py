"""Rows and reports as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.results import Report
from benchmarks.rows import CPU_RATIO, OURS, RATIO, Row
from benchmarks.stores import PEERS

NAME_WIDTH: Final = 42

_COLUMNS: Final = (
    ("peer", 12), ("ours", 12), ("spread", 8), ("p50 µs", 9), ("p99 µs", 9), ("cpu µs", 8),
    ("client", 8), ("ratio", 9), ("by cpu", 8), ("valkey", 9), ("7.0", 9), ("req.", 7), ("goal", 7),
)  # fmt: skip


def head(report: Report) -> None:
    """What is measured, and on what."""
    peers = ", ".join(f"{name} ({version})" for name, version in report["peers"].items())
    found = report["machine"]
    print(
        f"headwater {report['version']} ({report['build']}, {report['commit'][:8]}) beside {peers}"
    )
    print(f"{found['cpu']}, {found['cores']} cores; load before: {report['load_before']}")
    print(f"median of {report['rounds']} rounds of {report['seconds']} s")


def section(name: str) -> None:
    """The head of a section."""
    print(f"\n{name:<{NAME_WIDTH}}" + "".join(f"{text:>{width}}" for text, width in _COLUMNS))


def row(found: Row) -> None:
    """One line of the table."""
    ours, theirs = found.series.get(OURS), found.series.get(found.against)
    ratios = {peer: found.ratios(peer) for peer in (found.against, *PEERS)}
    target = found.target
    values: Sequence[str] = (
        figure(theirs.median if theirs and theirs.figures else None),
        figure(ours.median if ours and ours.figures else None),
        percent(found.as_json()["stores"].get(OURS, {}).get("spread")),
        figure(ours.other("p50_us") if ours else None),
        figure(ours.other("p99_us") if ours else None),
        figure(ours.other("cpu_us") if ours else None),
        percent(ours.other("client_busy") if ours else None),
        figure(ratios[found.against].get(RATIO)),
        figure(ratios[found.against].get(CPU_RATIO)),
        *(figure(ratios[peer].get(RATIO)) for peer in PEERS[1:]),
        figure(target.required if target else None),
        figure(target.goal if target else None),
    )
    cells = "".join(f"{text:>{width}}" for text, (_, width) in zip(values, _COLUMNS, strict=True))
    print(f"{f'{found.name} {found.unit}':<{NAME_WIDTH}}{cells}  {found.verdict()}", flush=True)
    for text in filter(None, (found.missing, found.note)):
        print(f"{'':<4}{text}", flush=True)


def summary(rows: Sequence[Row]) -> None:
    """How many rows reached what."""
    verdicts = [found.verdict() for found in rows]
    counts = {name: verdicts.count(name) for name in dict.fromkeys(verdicts)}
    print("\n" + ", ".join(f"{name}: {count}" for name, count in counts.items()))


def figure(value: float | None) -> str:
    """Three significant digits and more where it is large.

    >>> figure(1234567.0), figure(12.345), figure(0.01234), figure(None)
    ('1,234,567', '12.3', '0.0123', '')
    """
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percent(value: float | None) -> str:
    """A part of 1 as percent."""
    return "" if value is None else f"{value:.0%}"
