"""The report: one HTML file that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from headwater.demo import plots
from headwater.demo.html import document, facts, figure
from headwater.demo.reconcile import Line
from headwater.demo.sampling import Event, Sample
from headwater.demo.tables import Delays


class Story(NamedTuple):
    """Everything that the report tells."""

    title: str
    facts: Sequence[tuple[str, str]]
    lines: Sequence[Line]
    delays: Delays
    samples: Sequence[Sample]
    events: Sequence[Event]


def write(story: Story, path: Path) -> None:
    """Write the report to ``path``."""
    path.write_text(page(story), encoding="utf-8")


def page(story: Story) -> str:
    """The whole document."""
    held = all(line.holds for line in story.lines)
    verdict = "Every line of the reconciliation holds." if held else "A line does not hold."
    pictures = [
        (
            "Departure delay by hour",
            plots.delays_by_hour(story.delays),
            "From the hourly table: all days of each scheduled hour together.",
        ),
        (
            "Departure delay by airline",
            plots.delays_by_airline(story.delays),
            "From the carriers table, joined with the airlines' names.",
        ),
        (
            "Throughput",
            plots.throughput(story.samples, story.events),
            "Published and enriched a second; dotted lines mark what was done to the workers.",
        ),
        (
            "Pending and unread",
            plots.backlog(story.samples, story.events),
            (
                "Pending entries are delivered and not settled; a killed worker's stay so until "
                "the others claim them."
            ),
        ),
    ]
    return document(
        story.title,
        f'<p class="verdict {"holds" if held else "broken"}">{verdict}</p>',
        facts(story.facts),
        "<h2>Reconciliation</h2>",
        "<table>\n<tr><th>promise</th><th>expected</th><th>found</th><th></th></tr>",
        *map(row, story.lines),
        "</table>",
        *(figure(*picture) for picture in pictures if picture[1]),
    )


def row(line: Line) -> str:
    """One line of the reconciliation as a row of the table."""
    state = "holds" if line.holds else "broken"
    return (
        f'<tr class="{state}"><td>{escape(line.promise)}</td>'
        f"<td>{line.expected:,}</td><td>{line.found:,}</td>"
        f"<td>{'holds' if line.holds else escape(line.note or 'does not hold')}</td></tr>"
    )
