"""Writes an HTML page that shows why a worker group could not handle entries.

python -m examples.dead_letters.report
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from examples.dead_letters.airports import Place, airports
from examples.tables import rows
from headwater.demo.html import document, facts, figure, table
from headwater.demo.plots import GREY, ORANGE, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = Path(__file__).parent
SHOWN = 12


class Findings(NamedTuple):
    """The contents of the tables. ``causes`` are rows of the table, the most frequent first."""

    letters: int
    causes: list[dict[str, Any]]
    destinations: list[dict[str, Any]]


def look(tables: Path) -> Findings:
    """Read the pipeline's tables in ``tables``."""
    causes = sorted(rows(tables / "causes"), key=lambda row: (-row["letters"], row["what"]))
    hit = [row for row in rows(tables / "destinations") if row["dead"]]
    return Findings(sum(row["letters"] for row in causes), causes, hit)


def by_cause(causes: list[dict[str, Any]]) -> bytes:
    """Plot the dead letters by cause, as bars."""

    def draw(axes: Axes) -> None:
        shown = causes[:SHOWN][::-1]
        axes.barh([row["what"] for row in shown], [row["letters"] for row in shown], color=ORANGE)
        axes.set_xlabel("dead letters")

    return render(draw)


def on_the_map(hit: list[dict[str, Any]], places: dict[str, Place]) -> bytes:
    """Plot the known destinations as points, with sizes by their number of dead letters."""

    def draw(axes: Axes) -> None:
        axes.scatter(
            [place.lon for place in places.values()],
            [place.lat for place in places.values()],
            s=1,
            color=GREY,
        )
        for row in hit:
            place = places.get(row["dest"])
            if place is not None:
                axes.scatter(place.lon, place.lat, s=20 + 20 * row["dead"], color=ORANGE)
                axes.annotate(row["dest"], (place.lon, place.lat))
        axes.set_xlim(-170, -60)
        axes.set_xlabel("longitude")
        axes.set_ylabel("latitude")

    return render(draw)


def write(tables: Path, path: Path) -> Findings:
    """Write the page to ``path``; return its findings."""
    found = look(tables)
    unknown = sorted({row["dest"] for row in found.destinations} - set(airports()))
    page = document(
        "Dead letters of the group distances",
        facts(
            [
                ("dead letters", f"{found.letters:,}"),
                ("destinations missing in the list", ", ".join(unknown) or "none"),
            ]
        ),
        "<h2>Causes</h2>",
        table(
            ["kind", "what", "letters", "attempts", "first", "last"],
            [
                (r["kind"], r["what"], r["letters"], f"{r['attempts']:.1f}", r["first"], r["last"])
                for r in found.causes
            ],
        ),
        figure("Causes", by_cause(found.causes), "From the table causes."),
        figure(
            "Destinations with dead letters",
            on_the_map(found.destinations, airports()),
            "From the table destinations; destinations missing in the list are not on the map.",
        ),
    )
    path.write_text(page, encoding="utf-8")
    return found


def main() -> None:
    """Write report.html next to the tables."""
    path = HERE / "report.html"
    found = write(HERE / "tables", path)
    print(f"{path}: {found.letters:,} dead letters of {len(found.causes)} causes")


if __name__ == "__main__":
    main()
