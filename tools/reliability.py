"""Writes ``docs/reference/reliability.md``, and its chart of failovers, from campaigns/*.jsonl; tests/tidy checks the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.demo.plots import BLUE, ORANGE, render
from tests import campaigns
from tests.campaigns import DIRECTORY, Line

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "reliability.md"

HEAD = """\
# Results of the long campaigns

Written by `make docs` from `campaigns/*.jsonl`. Each line there is one run: date, commit, build, seeds,
trials, failures. No two runs use the same seeds. tests/README.md describes each campaign and how to run a
seed again. A commit with `+` had uncommitted changes. Counts are sums of all runs, times
the longest of all runs.
"""

FAILOVER, LOST = "failover", "lost answered writes"
CHART = PAGE.with_name("failovers.svg")
CHART_TEXT = f"""
![Answered writes that were lost in a hundred failovers of Headwater, Redis and Valkey]({CHART.name})

The same harness and faults judge all servers. `synchronous`, `min-replicas` and `WAIT` are settings of the servers and
clients; without them, each of these servers may lose the last answered writes.
"""

TABLE = "| part | runs | trials | failures | seeds | newest run |\n|---|---:|---:|---:|---|---|\n"


def page(directory: Path = DIRECTORY) -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for name in campaigns.campaigns(directory):
        found = campaigns.lines(name, directory=directory)
        rows = [row(part, [one for one in found if one["part"] == part]) for part in names(found)]
        parts.append(f"## {name}\n\n{TABLE}" + "".join(rows))
        if name == FAILOVER:
            parts.append(CHART_TEXT.strip() + "\n")
        failed = [*failures(found)]
        if failed:
            parts.append("\n".join(failed) + "\n")
    return "\n".join(parts)


def names(found: list[Line]) -> list[str]:
    """Return the names of the parts, sorted."""
    return sorted({one["part"] for one in found})


def row(part: str, runs: list[Line]) -> str:
    """Return a row of the table with a part's runs."""
    unit = runs[-1]["unit"]
    if unit.startswith("milliseconds"):
        trials = f"at most {max(one['trials'] for one in runs):,} ms"
    else:
        trials = f"{sum(one['trials'] for one in runs):,} {unit}"
    failed = sum(len(one["failures"]) for one in runs)
    drawn = [seed for one in runs if one["seeds"] for seed in one["seeds"]]
    seeds = f"{min(drawn)} to {max(drawn)}" if drawn else "none"
    last = runs[-1]
    newest = f"{last['date'][:10]}, {short(last['commit'])}, {last['build']}"
    return f"| {part} | {len(runs)} | {trials} | {failed} | {seeds} | {newest} |\n"


def failures(found: list[Line]) -> Iterator[str]:
    """Yield a line for each run that failed."""
    for one in found:
        if one["failures"]:
            first = one["failures"][0].split("\n")[0].strip()[:120]
            yield (
                f"- {one['date'][:10]}, {short(one['commit'])}, {one['part']}: "
                f"{len(one['failures'])} failed, first: `{first.replace('`', chr(39))}`"
            )


def losses(found: list[Line]) -> dict[str, float]:
    """Return the answered writes that each setup has lost in a hundred failovers."""

    def total(part: str) -> int:
        return sum(one["trials"] for one in found if one["part"] == part)

    setups = [one for one in names(found) if ": " not in one]
    return {one: 100 * total(f"{one}: {LOST}") / total(one) for one in setups if total(one)}


def chart(found: list[Line]) -> bytes:
    """Return the SVG of these losses, a bar for each setup."""
    lost = losses(found)

    def draw(axes: Any) -> None:
        setups = sorted(lost, reverse=True)
        colors = [BLUE if one.startswith("headwater") else ORANGE for one in setups]
        axes.barh(setups, [lost[one] for one in setups], color=colors)
        for at, one in enumerate(setups):
            axes.text(lost[one], at, f" {lost[one]:,.0f}", va="center")
        axes.set_xlabel("answered writes lost in a hundred failovers")

    return render(draw, height=1.2 + 0.4 * len(lost))


def short(commit: str) -> str:
    """Return seven digits of a commit, and ``+`` if the tree had changes."""
    return commit[:7] + ("+" if commit.endswith("+") else "")


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(PAGE.parents[2])}")
    found = campaigns.lines(FAILOVER)
    if found:
        CHART.write_bytes(chart(found))
        print(f"wrote {CHART.relative_to(PAGE.parents[2])}")


if __name__ == "__main__":
    main()
