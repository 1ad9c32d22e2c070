"""The report is one file that shows which promises held, which did not, and when each fault occurred."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence

import pytest

from headwater.demo import report
from headwater.demo.reconcile import Line
from headwater.demo.sampling import Event, Sample
from headwater.demo.tables import Delays

pytestmark = pytest.mark.slow

OWNED = {"worker-1": 20, "worker-2": 30}
SAMPLES = [Sample(n / 4, n * 100, n * 90, 0, n % 64, n * 10, OWNED) for n in range(40)]


EVENTS = [Event(2.9, "worker-1 stopped"), Event(3.0, "worker-2 killed")]
DELAYS = Delays([(5, -1.5), (18, 22.0)], [("United Air Lines Inc.", 12.0), ("Ex<press", 19)])


def page_of(
    *lines: Line,
    delays: Delays = DELAYS,
    samples: Sequence[Sample] = SAMPLES,
    events: Sequence[Event] = EVENTS,
) -> str:
    return report.page(
        title="Flights <&> tables",
        shown=["A producer published 10 flights."],
        facts=[("server", "127.0.0.1 & more")],
        lines=lines,
        delays=delays,
        samples=samples,
        events=events,
        ended={"worker-2": "the killed worker", "worker-1": "the stopped worker"},
    )


def test_the_report_is_one_file_with_five_plots() -> None:
    # When the report is written
    page = page_of(Line("published = enriched + dead", 10, 10))
    # Then it contains the plots and loads nothing else
    plots = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    drawn = [b64decode(plot).decode() for plot in plots]
    assert len(drawn) == 5
    # And those of the faults come first, with the killed worker's entries
    assert all("worker-2 killed" in plot for plot in drawn[:3])
    assert "the killed worker" in drawn[0]
    assert "United Air Lines Inc." in drawn[4]
    assert "A producer published 10 flights." in page
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert "Flights &lt;&amp;&gt; tables" in page
    assert "Every line of the reconciliation holds." in page


def test_a_broken_promise_is_visible() -> None:
    page = page_of(Line("entries still pending", 0, 3))
    assert "A line does not hold." in page
    assert '<tr class="broken"><td>entries still pending</td>' in page


def test_a_run_without_samples_still_has_a_report() -> None:
    page = page_of(samples=[], events=[], delays=Delays([], []))
    assert page.count("<figure>") == 5
