"""Writes ``docs/reference/reliability.md`` from campaigns/*.jsonl; tests/tidy compares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests import campaigns
from tests.campaigns import DIRECTORY, Line

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "reliability.md"

HEAD = """\
# What the long campaigns found

Written by `make docs` from `campaigns/*.jsonl`. Each line there is one run: date, commit, build, seeds,
trials, failures. No run repeats the seeds of another. tests/README.md says what each campaign does and
how a seed is played again. A commit with `+` had changes that were not committed.
"""

TABLE = "| part | runs | trials | failures | seeds | newest run |\n|---|---:|---:|---:|---|---|\n"


def page(directory: Path = DIRECTORY) -> str:
    """The page, as it should be."""
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
    """The parts, by name."""
    return sorted({one["part"] for one in found})


def row(part: str, runs: list[Line]) -> str:
    """A part's runs in one row of the table."""
    trials = f"{sum(one['trials'] for one in runs):,} {runs[-1]['unit']}"
    failed = sum(len(one["failures"]) for one in runs)
    drawn = [seed for one in runs if one["seeds"] for seed in one["seeds"]]
    seeds = f"{min(drawn)} to {max(drawn)}" if drawn else "nothing is drawn"
    last = runs[-1]
    newest = f"{last['date'][:10]}, {short(last['commit'])}, {last['build']}"
    return f"| {part} | {len(runs)} | {trials} | {failed} | {seeds} | {newest} |\n"


def failures(found: list[Line]) -> Iterator[str]:
    """A line for each run that failed."""
    for one in found:
        if one["failures"]:
            first = one["failures"][0].split("\n")[0].strip()[:120]
            yield (
                f"- {one['date'][:10]}, {short(one['commit'])}, {one['part']}: "
                f"{len(one['failures'])} failures, the first: `{first.replace('`', chr(39))}`"
            )


def short(commit: str) -> str:
    """Seven digits, and the plus of a changed tree."""
    return commit[:7] + ("+" if commit.endswith("+") else "")


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(PAGE.parents[2])}")


if __name__ == "__main__":
    main()
