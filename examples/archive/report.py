"""Reads archive and stream together, and writes counts and a plot as one HTML page.

    FLIGHTS_URL=redis://127.0.0.1:6379 python -m examples.archive.report

The page first says whether the read is complete: every entry ever added was read once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import headwater
import headwater.spark
from headwater.demo.html import document, facts, figure
from headwater.demo.plots import BLUE, ORANGE, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import DataFrame

HERE = Path(__file__).parent
URL = os.environ.get("FLIGHTS_URL", "redis://127.0.0.1:6379")
STREAM = "flights"
SCHEMA = "id string, timestamp timestamp, origin string, time_hour timestamp, dep_delay int"


class Findings(NamedTuple):
    """Numbers of entries: ever added, still in the stream, read, and read with an id that occurs twice."""

    added: int
    in_stream: int
    read: int
    doubled: int

    @property
    def whole(self) -> bool:
        """Whether every entry was read once."""
        return self.read == self.added and not self.doubled


def look(flights: DataFrame, url: str) -> Findings:
    """Count the entries that are read, and get the store's own counts."""
    read, ids = flights.selectExpr("count(*)", "count(DISTINCT id)").first() or (0, 0)
    with headwater.connect(url, decode_responses=True) as client:
        info: Any = client.xinfo_stream(STREAM)
    return Findings(info["entries-added"], info["length"], read, read - ids)


def by_day(days: list[Any], first_in_stream: Any) -> bytes:
    """Plot the flights of each day as bars, with another colour for those from the stream."""

    def draw(axes: Axes) -> None:
        archived = [day for day in days if day.day < first_in_stream]
        rest = [day for day in days if day.day >= first_in_stream]
        for part, colour, name in ((archived, BLUE, "archive"), (rest, ORANGE, "stream")):
            axes.bar([d.day for d in part], [d.flights for d in part], color=colour, label=name)
        axes.set_ylabel("flights")
        axes.legend(frameon=False)

    return render(draw)


def write(url: str, archive: Path, path: Path) -> Findings:
    """Write the page to ``path``; return its findings."""
    spark = headwater.spark.session(app="archive and stream")
    flights = headwater.spark.read(spark, STREAM, schema=SCHEMA, url=url, archive=str(archive))
    found = look(flights, url)
    live = headwater.spark.read(spark, STREAM, schema=SCHEMA, url=url)
    first = live.selectExpr("min(date(time_hour))").first()
    days = (
        flights.selectExpr("date(time_hour) AS day")
        .groupBy("day")
        .count()
        .selectExpr("day", "count AS flights")
        .orderBy("day")
        .collect()
    )
    verdict = "holds" if found.whole else "broken"
    page = document(
        "Archive and stream as one",
        f'<p class="verdict {verdict}">Every entry that was ever added, once: {verdict}.</p>',
        facts(
            [
                ("ever added", f"{found.added:,}"),
                ("still in the stream", f"{found.in_stream:,}"),
                ("read as one", f"{found.read:,}"),
            ]
        ),
        figure(
            "Flights by day",
            by_day(days, first[0] if first and first[0] else days[-1].day),
            "One read; the colours show where each day's flights are stored.",
        ),
    )
    path.write_text(page, encoding="utf-8")
    return found


def main() -> None:
    """Write report.html next to the archive."""
    path = HERE / "report.html"
    found = write(URL, HERE / "archive", path)
    print(f"{path}: {found.read:,} of {found.added:,} entries, {found.in_stream:,} of them live")


if __name__ == "__main__":
    main()
