"""The report: one HTML file that needs nothing beside it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from headwater.demo import plots
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
    figures = "\n".join(figure(*picture) for picture in pictures if picture[1])
    return _PAGE.format(
        title=escape(story.title),
        style=_STYLE,
        verdict=verdict,
        state="holds" if held else "broken",
        facts="\n".join(
            f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in story.facts
        ),
        lines="\n".join(map(row, story.lines)),
        figures=figures,
    )


def row(line: Line) -> str:
    """One line of the reconciliation as a row of the table."""
    state = "holds" if line.holds else "broken"
    return (
        f'<tr class="{state}"><td>{escape(line.promise)}</td>'
        f"<td>{line.expected:,}</td><td>{line.found:,}</td>"
        f"<td>{'holds' if line.holds else escape(line.note or 'does not hold')}</td></tr>"
    )


def figure(title: str, svg: bytes, caption: str) -> str:
    """One plot; as an image of its own, so that the ids inside it meet no others."""
    data = b64encode(svg).decode("ascii")
    return (
        f'<figure><h3>{escape(title)}</h3><img alt="{escape(title)}" '
        f'src="data:image/svg+xml;base64,{data}"><figcaption>{escape(caption)}</figcaption></figure>'
    )


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a202c; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem }
h1 { margin-bottom: 0.2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: 0.3rem 0.6rem; border-bottom: 1px solid #e2e8f0 }
td:nth-child(2), td:nth-child(3), th:nth-child(2), th:nth-child(3) { text-align: right;
       font-variant-numeric: tabular-nums }
.holds td:last-child, .verdict.holds { color: #2f855a }
.broken, .verdict.broken { color: #c53030; font-weight: 600 }
dl { display: grid; grid-template-columns: max-content auto; gap: 0.1rem 1rem }
dd { margin: 0 }
figure { margin: 2rem 0 }
img { width: 100% }
figcaption { color: #718096 }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
<h1>{title}</h1>
<p class="verdict {state}">{verdict}</p>
<dl>
{facts}
</dl>
<h2>Reconciliation</h2>
<table>
<tr><th>promise</th><th>expected</th><th>found</th><th></th></tr>
{lines}
</table>
{figures}
</html>
"""
