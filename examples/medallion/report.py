"""Writes an HTML page about the tables of the medallion pipeline.

    python -m examples.medallion.report

The page first says whether the tables agree: every entry is in bronze, and either in silver or in its
quarantine.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from examples.tables import rows
from headwater.demo.html import document, facts, figure, table
from headwater.demo.plots import BLUE, GREEN, ORANGE, render
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.quality import BatchQuality, QualityLog
from headwater.spark.pipeline.sinks.parquet import AppendTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = Path(__file__).parent
COLOURS = {"EWR": BLUE, "JFK": ORANGE, "LGA": GREEN}


class Findings(NamedTuple):
    """The entry ids in each table, and the broken rules."""

    bronze: set[str]
    silver: set[str]
    quarantined: set[str]
    broken: Counter[str]
    """How many entries broke each rule."""

    @property
    def agree(self) -> bool:
        """Whether every entry of bronze is either in silver or in the quarantine."""
        return self.bronze == self.silver | self.quarantined and not self.silver & self.quarantined


def look(tables: Path) -> Findings:
    """Read the pipeline's tables in ``tables``."""
    apart = rows(tables / "silver.quarantine", "id", "_expectations")
    return Findings(
        bronze={row["id"] for row in rows(tables / "bronze", "id")},
        silver={row["id"] for row in rows(tables / "silver", "id")},
        quarantined={row["id"] for row in apart},
        broken=Counter(name for row in apart for name in row["_expectations"]),
    )


def by_day(days: list[dict[str, Any]]) -> bytes:
    """Plot the mean departure delay of each day, with a line for each airport."""
    airports: dict[str, list[tuple[Any, float]]] = defaultdict(list)
    for row in sorted(days, key=lambda row: row["day"]):
        if row["mean_dep_delay"] is not None:
            airports[row["origin"]].append((row["day"], row["mean_dep_delay"]))

    def draw(axes: Axes) -> None:
        for airport, points in sorted(airports.items()):
            axes.plot(*zip(*points, strict=True), color=COLOURS.get(airport), label=airport)
        axes.set_ylabel("minutes late at departure")
        axes.legend(frameon=False)

    return render(draw)


def by_batch(batches: list[BatchQuality]) -> bytes:
    """Plot the share of the rows of each batch that violated a rule, with a line for each rule."""

    def draw(axes: Axes) -> None:
        counted = [one for one in batches if one.rows]
        for rule in sorted({rule for one in counted for rule in one.violations}):
            shares = [100 * one.violations.get(rule, 0) / one.rows for one in counted]
            axes.plot([str(one.batch.number) for one in counted], shares, marker="o", label=rule)
        axes.set_xlabel("batch")
        axes.set_ylabel("% of the batch's rows")
        axes.legend(frameon=False)

    return render(draw)


def by_airline(airlines: list[dict[str, Any]]) -> bytes:
    """Plot the share of cancelled flights by airline as bars, the largest first."""

    def draw(axes: Axes) -> None:
        ranked = sorted(airlines, key=lambda row: row["cancelled"])
        axes.barh([row["airline"] for row in ranked], [100 * row["cancelled"] for row in ranked])
        axes.set_xlabel("cancelled, % of scheduled flights")

    return render(draw, height=4.6)


def write(tables: Path, path: Path) -> Findings:
    """Write the page to ``path``; return its findings."""
    found = look(tables)
    days, airlines = rows(tables / "gold_days"), rows(tables / "gold_airlines")
    verdict = "holds" if found.agree else "broken"
    page = document(
        "Bronze, silver, gold",
        f'<p class="verdict {verdict}">Every entry in silver or in quarantine, once: {verdict}.</p>',
        facts(
            [
                ("entries in bronze", f"{len(found.bronze):,}"),
                ("rows in silver", f"{len(found.silver):,}"),
                ("in quarantine", f"{len(found.quarantined):,}"),
            ]
        ),
        "<h2>Rules that were broken</h2>",
        table(["rule", "entries"], found.broken.most_common()),
        figure(
            "Quality of each batch",
            by_batch(
                QualityLog(Checkpoint(AppendTable(tables / "silver", ()).checkpoint).own).batches()
            ),
            "From the history of silver's expectations; `headwater pipeline quality` prints it.",
        ),
        figure("Delay by day", by_day(days), "From gold_days."),
        figure("Cancelled flights by airline", by_airline(airlines), "From gold_airlines."),
    )
    path.write_text(page, encoding="utf-8")
    return found


def main() -> None:
    """Write report.html next to the tables."""
    path = HERE / "report.html"
    found = write(HERE / "tables", path)
    print(f"{path}: {len(found.bronze):,} entries, {len(found.quarantined):,} in quarantine")


if __name__ == "__main__":
    main()
