"""A row of the table: what each store did, round after round, and what that is held to.

Rule 1. The stores are measured in turn, so the figures of one round belong together: a ratio is the
        median of the rounds' ratios, and a machine that slows down half way changes none of them.
Rule 2. A ratio is always ours over theirs, and of processor time theirs over ours, so that more than
        1 is work done faster; where a figure itself is better when it is less, `better` says so.
Rule 3. What could not be measured is no number: the row says why.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

OURS: Final = "headwater"
REDIS: Final = "redis-8.2"

CPU: Final = "cpu_us"
"""The figure beside the main one that every row of operations has."""

TIMES: Final = "x"
"""The unit of figures that are ratios."""

RATIO, CPU_RATIO, FIGURE = "ratio", "cpu", "figure"


@dataclass(frozen=True)
class Target:
    """What is required of a row, and what is the goal.

    ``by`` says of what: the ratio to a peer, the ratio of processor time, or our own figure. Both
    are held against the row's first peer; ``required_of`` is what is required against others too.
    ``judged`` False reports without a verdict.
    """

    required: float
    goal: float
    by: str = RATIO
    required_of: Mapping[str, float] = field(default_factory=dict)
    judged: bool = True


@dataclass
class Series:
    """The rounds of one store: the row's figure, and others by name."""

    figures: list[float] = field(default_factory=list)
    others: dict[str, list[float]] = field(default_factory=dict)

    def add(self, figure: float, **others: float) -> None:
        """One round more."""
        self.figures.append(figure)
        for name, value in others.items():
            self.others.setdefault(name, []).append(value)

    @property
    def median(self) -> float:
        return statistics.median(self.figures)

    def other(self, name: str) -> float | None:
        """The median of another figure, None where it was not measured."""
        return statistics.median(self.others[name]) if self.others.get(name) else None


@dataclass
class Row:
    """One subject on all stores. ``better`` is ``more`` or ``less`` of ``unit``."""

    section: str
    name: str
    unit: str
    better: str = "more"
    against: str = REDIS
    """The peer that the target's ratio is to."""
    target: Target | None = None
    series: dict[str, Series] = field(default_factory=dict)
    missing: str = ""
    """Why there is no figure of ours."""
    note: str = ""

    def of(self, store: str) -> Series:
        """The series of a store, made when it is first asked for."""
        return self.series.setdefault(store, Series())

    def ratios(self, peer: str) -> dict[str, float]:
        """``figure`` and, where there is one, ``cpu``: see Rule 2. Empty where one of the two has
        no figures."""
        ours, theirs = self.series.get(OURS), self.series.get(peer)
        if self.unit == TIMES:
            return {}  # a store's figure is a ratio already, to its own
        if ours is None or theirs is None or not ours.figures or not theirs.figures:
            return {}
        found = {RATIO: paired(ours.figures, theirs.figures)}
        if ours.others.get(CPU) and theirs.others.get(CPU):
            found[CPU_RATIO] = paired(theirs.others[CPU], ours.others[CPU])
        return found

    def value(self, peer: str = "") -> float | None:
        """What the target is held against; None where it was not measured."""
        if self.target is None or self.missing:
            return None
        if self.target.by == FIGURE:
            return self.series[OURS].median if OURS in self.series else None
        return self.ratios(peer or self.against).get(self.target.by)

    def holds(self, bound: float, value: float | None) -> bool:
        """Whether ``value`` is at least ``bound``, or at most where less is better."""
        if value is None:
            return False
        less = self.better == "less" and self.target is not None and self.target.by != CPU_RATIO
        return value <= bound if less else value >= bound

    def verdict(self) -> str:
        """``goal``, ``required`` or ``missed``; ``reported`` where nothing is judged, ``not available``
        where there is nothing to judge."""
        value = self.value()
        if self.missing:
            return "not available"
        if self.target is None or not self.target.judged:
            return "reported"
        if value is None:
            return "not available"
        bounds = {self.against: self.target.required, **self.target.required_of}
        for peer, bound in bounds.items():
            found = self.value(peer)
            if found is not None and not self.holds(bound, found):
                return "missed"
        return "goal" if self.holds(self.target.goal, value) else "required"

    def as_json(self) -> dict[str, Any]:
        """What the results keep of it."""
        kept: dict[str, Any] = {
            "section": self.section,
            "name": self.name,
            "unit": self.unit,
            "better": self.better,
            "against": self.against,
            "verdict": self.verdict(),
        }
        if self.target is not None:
            kept["target"] = {
                "by": self.target.by,
                "required": self.target.required,
                "goal": self.target.goal,
                "required_of": dict(self.target.required_of),
                "value": significant(self.value()),
            }
        for name in ("missing", "note"):
            if getattr(self, name):
                kept[name] = getattr(self, name)
        kept["stores"] = {
            name: _series_json(series) for name, series in self.series.items() if series.figures
        }
        kept["ratios"] = {
            peer: {kind: significant(value) for kind, value in self.ratios(peer).items()}
            for peer in self.series
            if peer != OURS and self.ratios(peer)
        }
        return kept


def _series_json(series: Series) -> dict[str, Any]:
    kept = {
        "median": significant(series.median),
        "spread": round(spread(series.figures), 3),
        "rounds": [significant(figure) for figure in series.figures],
    }
    for name in series.others:
        kept[name] = significant(series.other(name))
    return kept


def paired(over: Sequence[float], under: Sequence[float]) -> float:
    """The median of the ratios of figures that were measured in the same round; of the medians where
    there are not as many of both.

    >>> paired([10.0, 30.0, 20.0], [10.0, 15.0, 20.0])
    1.0
    """
    if len(over) != len(under):
        return statistics.median(over) / max(statistics.median(under), 1e-12)
    return statistics.median(a / max(b, 1e-12) for a, b in zip(over, under, strict=True))


def spread(values: Sequence[float]) -> float:
    """How far the rounds lie apart, as a part of their median.

    >>> spread([90.0, 100.0, 110.0])
    0.2
    """
    middle = statistics.median(values)
    return (max(values) - min(values)) / abs(middle) if middle else 0.0


def significant(value: float | None) -> float | int | None:
    """Four significant digits, which is more than any machine repeats; whole from 1000 on.

    >>> significant(1234567.8), significant(0.0123456)
    (1235000, 0.01235)
    """
    if value is None:
        return None
    rounded = float(f"{value:.4g}")
    return int(rounded) if abs(rounded) >= 1000 else rounded
