"""`Row`, a row of the tables: each store's measurements, round by round, and the row's `Target`.

Rule 1. The stores are measured in turn, so the measurements of one round belong together: a ratio is the
        median of the rounds' ratios, and a machine that slows down during the run does not change it.
Rule 2. A ratio is Headwater's value divided by the peer's. So above 1 is better, unless `Row.better` is
        ``less``. Only a ratio of processor time is the peer's divided by Headwater's: above 1 is always better.
Rule 3. If something could not be measured, the row has no number and says why.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

OURS: Final = "headwater"
REDIS: Final = "redis-8.2"
"""The peer that required ratios refer to."""

CPU: Final = "cpu_us"
"""The name of an additional measurement, which every row of operations has: processor time per operation."""

TIMES: Final = "x"
"""The unit of measurements that are ratios."""

RATIO, CPU_RATIO, OWN_VALUE = "ratio", "cpu", "figure"
"""What a target applies to (`Target.by`): a ratio, a ratio of processor time, or Headwater's own measurement."""


@dataclass(frozen=True)
class Target:
    """The required value of a row, and its goal."""

    required: float
    goal: float
    by: str = RATIO
    """Which value: `RATIO` or `CPU_RATIO`, to the peer `Row.against`, or `OWN_VALUE`."""
    required_of: Mapping[str, float] = field(default_factory=dict)
    """Required ratios to other peers."""
    judged: bool = True
    """Whether the row has a verdict. If not, it is only reported."""


@dataclass
class Series:
    """The rounds of one store: the row's measurement, and additional ones by name."""

    measurements: list[float] = field(default_factory=list)
    others: dict[str, list[float]] = field(default_factory=dict)

    def add(self, value: float, **others: float) -> None:
        """Add one round."""
        self.measurements.append(value)
        for name, other in others.items():
            self.others.setdefault(name, []).append(other)

    @property
    def median(self) -> float:
        """The median of the row's measurement."""
        return statistics.median(self.measurements)

    def other(self, name: str) -> float | None:
        """Return the median of an additional measurement, None if it was not measured."""
        return statistics.median(self.others[name]) if self.others.get(name) else None


@dataclass
class Row:
    """The measurements of one subject on all stores."""

    section: str
    name: str
    unit: str
    better: str = "more"
    """``more`` or ``less``: which values are better."""
    against: str = REDIS
    """The peer that the target refers to."""
    target: Target | None = None
    series: dict[str, Series] = field(default_factory=dict)
    missing: str = ""
    """Why Headwater was not measured; empty if it was."""
    note: str = ""
    """A remark that is printed with the row."""

    def of(self, store: str) -> Series:
        """Return the series of a store; add an empty one if there is none."""
        return self.series.setdefault(store, Series())

    def ratios(self, peer: str) -> dict[str, float]:
        """Return the ratios to ``peer`` (Rule 2): `RATIO` and, if processor time was measured, `CPU_RATIO`.

        Returns none if one of the two stores was not measured, or if the measurements are ratios already.
        """
        ours, theirs = self.series.get(OURS), self.series.get(peer)
        if self.unit == TIMES:
            return {}
        if ours is None or theirs is None or not ours.measurements or not theirs.measurements:
            return {}
        found = {RATIO: paired(ours.measurements, theirs.measurements)}
        if ours.others.get(CPU) and theirs.others.get(CPU):
            found[CPU_RATIO] = paired(theirs.others[CPU], ours.others[CPU])
        return found

    def value(self, peer: str = "") -> float | None:
        """Return the value that the target applies to, for a ratio that to ``peer`` (by default `against`).

        Returns None if there is no target or if the value was not measured.
        """
        if self.target is None or self.missing:
            return None
        if self.target.by == OWN_VALUE:
            return self.series[OURS].median if OURS in self.series else None
        return self.ratios(peer or self.against).get(self.target.by)

    def holds(self, bound: float, value: float | None) -> bool:
        """Return whether ``value`` is at least ``bound``, or at most if less is better; False for None."""
        if value is None:
            return False
        less = self.better == "less" and self.target is not None and self.target.by != CPU_RATIO
        return value <= bound if less else value >= bound

    def verdict(self) -> str:
        """Return ``missed`` if the value or a ratio to another peer misses its required value, ``goal`` if the value
        meets the goal, otherwise ``required``.

        Returns ``reported`` if the row is not judged, and ``not available`` if it was not measured.
        """
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
        """Return the row as the results store it."""
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
            name: _series_json(series)
            for name, series in self.series.items()
            if series.measurements
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
        "spread": round(spread(series.measurements), 3),
        "rounds": [significant(value) for value in series.measurements],
    }
    for name in series.others:
        kept[name] = significant(series.other(name))
    return kept


def paired(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the ratios of measurements of the same round; if the numbers of rounds differ,
    the ratio of the medians.

    >>> paired([10.0, 30.0, 20.0], [10.0, 15.0, 20.0])
    1.0
    """
    if len(over) != len(under):
        return statistics.median(over) / max(statistics.median(under), 1e-12)
    return statistics.median(a / max(b, 1e-12) for a, b in zip(over, under, strict=True))


def spread(values: Sequence[float]) -> float:
    """Return the range of the rounds, as a fraction of their median.

    >>> spread([90.0, 100.0, 110.0])
    0.2
    """
    middle = statistics.median(values)
    return (max(values) - min(values)) / abs(middle) if middle else 0.0


def significant(value: float | None) -> float | int | None:
    """Round to four significant digits, more than a machine reproduces; to an integer from 1000 on.

    >>> significant(1234567.8), significant(0.0123456)
    (1235000, 0.01235)
    """
    if value is None:
        return None
    rounded = float(f"{value:.4g}")
    return int(rounded) if abs(rounded) >= 1000 else rounded
