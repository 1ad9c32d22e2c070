"""Writes an HTML page about the tables of the declarative pipeline.

    python -m examples.declarative.report DIRECTORY

The page first says whether the tables agree: every entry of bronze is in silver or rejected, once.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from examples.medallion.report import by_day
from examples.tables import rows
from headwater.demo.html import document, facts, figure, table


class Findings(NamedTuple):
    """The entry ids in each table, in the order of the files, and how many entries broke each rule."""

    bronze: list[str]
    silver: list[str]
    rejected: list[str]
    broken: Counter[str]

    @property
    def agree(self) -> bool:
        """Whether every entry of bronze is in silver or rejected, once."""
        return sorted(self.bronze) == sorted(self.silver + self.rejected) and len(
            set(self.bronze)
        ) == len(self.bronze)


def look(directory: Path) -> Findings:
    """Read the tables in the warehouse of ``directory``."""
    tables = directory / "spark-warehouse"
    rejected = rows(tables / "rejected", "id", "broken")
    return Findings(
        bronze=[row["id"] for row in rows(tables / "bronze", "id")],
        silver=[row["id"] for row in rows(tables / "silver", "id")],
        rejected=[row["id"] for row in rejected],
        broken=Counter(name for row in rejected for name in row["broken"]),
    )


def write(directory: Path, path: Path) -> Findings:
    """Write the page to ``path``; return its findings."""
    found = look(directory)
    verdict = "holds" if found.agree else "broken"
    page = document(
        "Declarative Pipelines",
        f'<p class="verdict {verdict}">Every entry in silver or rejected, once: {verdict}.</p>',
        facts(
            [
                ("entries in bronze", f"{len(found.bronze):,}"),
                ("rows in silver", f"{len(found.silver):,}"),
                ("rejected", f"{len(found.rejected):,}"),
            ]
        ),
        "<h2>Rules that were broken</h2>",
        table(["rule", "entries"], found.broken.most_common()),
        figure(
            "Delay by day",
            by_day(rows(directory / "spark-warehouse" / "gold_days")),
            "From the materialized view gold_days.",
        ),
    )
    path.write_text(page, encoding="utf-8")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    found = write(directory, directory / "report.html")
    print(
        f"{directory / 'report.html'}: {len(found.bronze):,} entries, {len(found.rejected):,} rejected"
    )


if __name__ == "__main__":
    main()
