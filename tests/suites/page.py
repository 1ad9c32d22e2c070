"""Writes ``docs/reference/suites.md`` from a complete run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from headwater import __version__
from tests.suites.differences import Explained, Explanation, Finding, explain
from tests.suites.sources import ROOT

PAGE = ROOT / "docs" / "reference" / "suites.md"

HEAD = """\
# Other projects' tests

Written by `make suites`, which runs tests of Redis and of redis-py against Headwater and against Redis 8.2.3 and
compares test by test. It runs them from Debian's source package of Redis and from redis-py's source distribution;
nothing of them is part of Headwater. ioredis has tests, too, but neither its npm package nor Debian distributes
them; `tests/clients` runs ioredis and node-redis.

{date}: Headwater {version}, tests of Redis {suite}, tests of {client}.

*Same*: both servers pass the test, or both do not. *Better*: only Headwater passes it. *Missing*: Headwater does not
have a command that the test uses. *Design*: Headwater differs on purpose. *Unexplained* fails the run. A server that
does not start with what a test gives it, and a block of tests that an error ends early, count in addition to the
tests. `tests/suites/differences.toml` has the explanations; one that explains nothing fails the run as well.

Redis's tests are adjusted: a test that fails does not leave a pause, a limit or a transaction to the tests after it; an
error outside of a test ends its block of tests and not the run; a block that cannot let scripts call every command runs
nevertheless; and the half of `scripting` that runs each script as a function is left out, because Headwater has no
functions. Headwater runs with two defaults of Redis: `latency-tracking yes`, and `bind * -::*` where a test's
configuration has no addresses.
"""


class Result(NamedTuple):
    """A file of tests: how many tests each server ran, how many have the same outcome, and the others."""

    file: str
    tests: int
    same: int
    findings: list[Finding]


def page(results: list[Result], explanations: list[Explanation], suite: str, client: str) -> str:
    """Return the text of the page."""
    explained = explain((one for each in results for one in each.findings), explanations)
    date = datetime.now(UTC).date()
    parts = [
        HEAD.format(date=date, version=__version__, suite=suite, client=client),
        "\n".join(_table(results, explained)),
        "## Missing commands\n",
        "\n".join(_missing(explanations, explained)),
        "## Differences by design\n",
        "\n".join(_design(explanations, explained)),
        "## Tests that only Headwater passes\n",
        "\n".join(_better(results)),
    ]
    return "\n".join(parts) + "\n"


def _table(results: list[Result], explained: list[Explained]) -> Iterator[str]:
    yield "| file | tests | same | better | missing | design | unexplained |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    kinds = Counter(
        (one.finding.file, one.explanation.kind if one.explanation else "") for one in explained
    )
    rows = []
    for file, tests, same, findings in results:
        better = sum(one.is_better() for one in findings)
        rows.append(
            (tests, same, better, *(kinds[file, kind] for kind in ("missing", "design", "")))
        )
        yield f"| {file} | " + " | ".join(map(str, rows[-1])) + " |"
    yield (
        "| together | "
        + " | ".join(str(sum(column)) for column in zip(*rows, strict=True))
        + " |\n"
    )


def _missing(explanations: list[Explanation], explained: list[Explained]) -> Iterator[str]:
    yield "| commands | tests | why |"
    yield "|---|---:|---|"
    for explanation in explanations:
        if explanation.kind == "missing":
            count = sum(one.explanation is explanation for one in explained)
            names = ", ".join(name.upper().replace("|", " ") for name in explanation.commands)
            yield f"| {names} | {count} | {explanation.reason} |"
    yield ""


def _design(explanations: list[Explanation], explained: list[Explained]) -> Iterator[str]:
    for explanation in explanations:
        tests = [one.finding for one in explained if one.explanation is explanation]
        if explanation.kind == "design" and tests:
            yield f"- {explanation.reason}{_link(explanation)}: {len(tests)}"
            named = dict.fromkeys(f"{one.file}: {one.name}" for one in tests)
            yield from (f"    - {_plain(name)}" for name in named)
    yield ""


def _link(explanation: Explanation) -> str:
    if explanation.guide:
        return f" ([guide](../guide/{explanation.guide}))"
    (found,) = (ROOT / "docs" / "adr").glob(f"{explanation.adr:04}-*.md")
    return f" ([ADR {explanation.adr}](../adr/{found.name}))"


def _better(results: list[Result]) -> Iterator[str]:
    for one in (one for each in results for one in each.findings):
        if one.is_better():
            yield f"- {_plain(f'{one.file}: {one.test}')} ({one.theirs}, {one.ours.status})"


def _plain(name: str) -> str:
    return "`" + name.replace("`", "'") + "`"


def write(text: str, path: Path = PAGE) -> None:
    """Write the page."""
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")
