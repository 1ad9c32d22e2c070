"""Writes ``docs/reference/reliability.md`` from campaigns/*.jsonl; tests/tidy checks the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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

TABLE = "| part | runs | trials | failures | seeds | newest run |\n|---|---:|---:|---:|---|---|\n"


def page(directory: Path = DIRECTORY) -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for name in campaigns.campaigns(directory):
        found = campaigns.lines(name, directory=directory)
        rows = [row(part, [one for one in found if one["part"] == part]) for part in names(found)]
        parts.append(f"## {name}\n\n{TABLE}" + "".join(rows))
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


def short(commit: str) -> str:
    """Return seven digits of a commit, and ``+`` if the tree had changes."""
    return commit[:7] + ("+" if commit.endswith("+") else "")


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(PAGE.parents[2])}")


if __name__ == "__main__":
    main()
