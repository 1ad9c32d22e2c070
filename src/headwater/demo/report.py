"""The report: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from headwater.demo import html, plots
from headwater.demo.reconcile import Line
from headwater.demo.sampling import Event, Sample
from headwater.demo.tables import Delays


def page(
    *,
    title: str,
    shown: Sequence[str],
    facts: Sequence[tuple[str, str]],
    lines: Sequence[Line],
    delays: Delays,
    samples: Sequence[Sample],
    events: Sequence[Event],
    ended: Mapping[str, str],
) -> str:
    """Return the whole document. ``shown`` has sentences that describe the run. ``ended`` maps the killed and the
    stopped consumer to their labels."""
    all_hold = all(line.holds for line in lines)
    verdict = "Every line of the reconciliation holds." if all_hold else "A line does not hold."
    pictures = [
        (
            "Pending entries by owner",
            plots.pending(samples, events, ended),
            (
                "Pending entries are delivered but not settled. Those of the killed worker stay pending until the "
                "other workers claim them."
            ),
        ),
        (
            "Entries not read yet",
            plots.unread(samples, events),
            "The group's lag: it grows while workers are missing.",
        ),
        (
            "Throughput",
            plots.throughput(samples, events),
            "Flights published and enriched per second; dotted lines mark a stopped or killed worker.",
        ),
        (
            "Departure delay by hour",
            plots.delays_by_hour(delays),
            "From the hourly table: the mean over all days for each scheduled hour.",
        ),
        (
            "Departure delay by airline",
            plots.delays_by_airline(delays),
            "From the carriers table, joined with the airlines' names.",
        ),
    ]
    return html.document(
        title,
        f'<p class="verdict {"holds" if all_hold else "broken"}">{verdict}</p>',
        html.paragraph(shown),
        html.facts(facts),
        "<h2>Reconciliation</h2>",
        "<table>\n<tr><th>promise</th><th>expected</th><th>found</th><th></th></tr>",
        *map(row, lines),
        "</table>",
        *(html.figure(*picture) for picture in pictures if picture[1]),
    )


def row(line: Line) -> str:
    """Return one line of the reconciliation as a row of the table."""
    state = "holds" if line.holds else "broken"
    return (
        f'<tr class="{state}"><td>{escape(line.promise)}</td>'
        f"<td>{line.expected:,}</td><td>{line.found:,}</td>"
        f"<td>{'holds' if line.holds else escape(line.note or 'does not hold')}</td></tr>"
    )
