"""The report's plots, each an SVG document as bytes. Only this module imports matplotlib."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from headwater.demo.sampling import Event, Sample
from headwater.demo.tables import Delays

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, GREY, RED = "#2b6cb0", "#dd6b20", "#2f855a", "#718096", "#c53030"

LABEL_HEIGHT = 0.075
"""Height of an event's label, as a fraction of the plot's height."""


def render(draw: Callable[[Axes], None], *, height: float = 3.2) -> bytes:
    """Return one plot, drawn by ``draw``, as an SVG document."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Text is not converted to paths, so it can be searched, and the file is a tenth of the size.
    with mpl.rc_context({"svg.fonttype": "none", "font.size": 10, "axes.axisbelow": True}):
        figure = Figure(figsize=(8.5, height), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color="#e2e8f0")
        draw(axes)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def delays_by_hour(delays: Delays) -> bytes:
    """Plot the mean departure delay by scheduled hour of departure, as bars."""

    def draw(axes: Axes) -> None:
        hours = [hour for hour, _mean in delays.by_hour]
        axes.bar(hours, [mean for _hour, mean in delays.by_hour], color=BLUE)
        axes.set_xticks(hours)
        axes.set_xlabel("scheduled hour of departure, New York")
        axes.set_ylabel("minutes late")

    return render(draw)


def delays_by_airline(delays: Delays) -> bytes:
    """Plot the mean departure delay by airline as bars, the largest first."""

    def draw(axes: Axes) -> None:
        ranked = sorted(delays.by_airline, key=lambda pair: pair[1])
        axes.barh([name for name, _mean in ranked], [mean for _name, mean in ranked], color=BLUE)
        axes.set_xlabel("minutes late")

    return render(draw, height=4.6)


def throughput(samples: Sequence[Sample], events: Sequence[Event]) -> bytes:
    """Plot the flights published and enriched in each second of the run, as lines."""

    def draw(axes: Axes) -> None:
        for name, colour in (("published", GREY), ("enriched", GREEN)):
            seconds, rates = rate(samples, name)
            axes.plot(seconds, rates, color=colour, label=name, drawstyle="steps-mid")
        axes.set_ylabel("flights a second")
        finish(axes, events)

    return render(draw)


def pending(samples: Sequence[Sample], events: Sequence[Event], named: Mapping[str, str]) -> bytes:
    """Plot the pending entries by owner over the run: a line for each consumer in ``named`` (consumer → label),
    one for all other consumers, and one for entries without an owner."""

    def draw(axes: Axes) -> None:
        seconds = [sample.seconds for sample in samples]
        for (consumer, label), colour in zip(named.items(), (RED, ORANGE), strict=False):
            owned = [sample.owned.get(consumer, 0) for sample in samples]
            axes.plot(seconds, owned, color=colour, label=label)
        others = [
            sum(count for name, count in sample.owned.items() if name not in named)
            for sample in samples
        ]
        axes.plot(seconds, others, color=GREEN, label="the other workers")
        released = [sample.pending - sum(sample.owned.values()) for sample in samples]
        axes.plot(seconds, [max(count, 0) for count in released], color=GREY, label="no owner")
        axes.set_ylabel("pending entries")
        finish(axes, events)

    return render(draw)


def unread(samples: Sequence[Sample], events: Sequence[Event]) -> bytes:
    """Plot the number of entries not yet delivered to the group, over the run."""

    def draw(axes: Axes) -> None:
        seconds = [sample.seconds for sample in samples]
        axes.plot(seconds, [max(s.unread, 0) for s in samples], color=BLUE, label="not read yet")
        axes.set_ylabel("entries not read yet")
        finish(axes, events)

    return render(draw)


def rate(samples: Sequence[Sample], name: str) -> tuple[list[float], list[float]]:
    """Return the middle of each interval between samples, and by how much a count grew per second in it.

    >>> rate([Sample(0, 0, 0, 0, 0, 0), Sample(2, 500, 0, 0, 0, 0)], "published")
    ([1.0], [250.0])
    """
    kept: list[Sample] = []
    for sample in samples:
        if not kept or sample.seconds - kept[-1].seconds >= 1:
            kept.append(sample)
    middles, rates = [], []
    for left, right in pairwise(kept):
        middles.append((left.seconds + right.seconds) / 2)
        grown = getattr(right, name) - getattr(left, name)
        rates.append(grown / (right.seconds - left.seconds))
    return middles, rates


def finish(axes: Axes, events: Sequence[Event]) -> None:
    """Mark the events, add the legend, start the y axis at zero."""
    axes.set_xlabel("seconds")
    for number, event in enumerate(events):
        axes.axvline(event.seconds, color=RED, linewidth=1, linestyle=":")
        axes.annotate(
            event.what,
            # Above the plot, one line for each event, so that labels of close events do not overlap.
            (event.seconds, 1.02 + LABEL_HEIGHT * (len(events) - 1 - number)),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            fontsize=8,
            color=RED,
        )
    lines = axes.get_lines()
    named = [line for line in lines if not str(line.get_label()).startswith("_")]
    axes.legend(
        named,
        [str(line.get_label()) for line in named],
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2),
        ncols=max(1, len(named)),
    )
    axes.set_ylim(bottom=0)
