"""Compares the outcomes of two servers, and explains each difference by ``differences.toml``.

A test that only Headwater passes is better and needs no explanation. Any other test with different outcomes needs one.
An explanation that explains nothing is stale, so that the file stays up to date.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.suites.running import Outcome, Outcomes
from tests.suites.sources import ENDED_EARLY

PATH: Final = Path(__file__).with_name("differences.toml")

NOT_RUN: Final = Outcome("none")

_REPEATED = re.compile(r"( #\d+|\[(single|pool)\])+$")
_UNKNOWN = re.compile(r"(?:unknown command|ERR Command) \\?'([^'\\]+)", re.IGNORECASE)
_UNKNOWN_PART = re.compile(r"unknown subcommand[^']*'([^']+)'\. Try (\w+) HELP", re.IGNORECASE)
_BLOCKS = (ENDED_EARLY, "Can't start the Redis server")


class Explanation(NamedTuple):
    """Why tests differ. ``kind`` is ``missing``, with the commands that Headwater does not have, or ``design``,
    with the ADR that has the decision, or the page and section of the guide that tells users. It explains the ``tests`` of each of the ``files``; the tests whose error
    has the text ``error``; without either, those whose error says that one of ``commands`` is unknown."""

    kind: str
    reason: str
    commands: tuple[str, ...] = ()
    adr: int = 0
    files: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    error: str = ""
    guide: str = ""


class Finding(NamedTuple):
    """A test of a file with different outcomes."""

    file: str
    test: str
    theirs: str
    ours: Outcome

    @property
    def name(self) -> str:
        """The test's name without what tells apart tests of one name."""
        return _REPEATED.sub("", self.test)

    def is_better(self) -> bool:
        """Return whether Headwater passes the test."""
        return self.ours.status == "ok"


class Explained(NamedTuple):
    """A finding, what explains it, and the unknown command that its error names."""

    finding: Finding
    explanation: Explanation | None
    command: str


def read(text: str) -> list[Explanation]:
    """Read explanations from TOML. Raises `ValueError` for one that is not complete."""
    found = []
    for kind, rows in tomllib.loads(text).items():
        for row in rows:
            lists = {name: tuple(row.get(name, ())) for name in ("commands", "files", "tests")}
            others = {name: row[name] for name in row.keys() - lists.keys()}
            one = Explanation(kind=kind, **{**lists, **others})
            if kind not in ("missing", "design") or bool(one.tests) != bool(one.files):
                raise ValueError(f"neither complete nor known: {one}")
            if (kind == "missing" and not one.commands) or (kind == "design" and one.commands):
                raise ValueError(f"'missing' names commands, 'design' does not: {one}")
            if kind == "design" and bool(one.adr) == bool(one.guide):
                raise ValueError(f"it needs one page that tells users: {one}")
            if not (one.commands or one.tests or one.error):
                raise ValueError(f"it explains nothing: {one}")
            found.append(one)
    return found


def compare(file: str, theirs: Outcomes, ours: Outcomes) -> list[Finding]:
    """Return the tests of a file that have different outcomes. A test that did not run because its block of
    tests ended early has the reason of that."""
    causes = _causes(theirs, ours)
    found = [
        Finding(file, name, outcome.status, ours.get(name, causes.get(name, NOT_RUN)))
        for name, outcome in theirs.items()
        if ours.get(name, NOT_RUN).status != outcome.status
    ]
    known = {outcome.why for outcome in causes.values()}
    for name, outcome in ours.items():
        if name not in theirs and not (name.startswith(_BLOCKS) and outcome.why in known):
            found.append(Finding(file, name, "none", outcome))
    return found


def _causes(theirs: Outcomes, ours: Outcomes) -> Outcomes:
    """Return why tests did not run: the error of the first block that ended after the test before them."""
    places = {name: at for at, name in enumerate(ours)}
    found, last = Outcomes(), -1
    for name in theirs:
        if name in ours:
            last = max(last, places[name])
            continue
        for block, at in places.items():
            if at > last and block.startswith(_BLOCKS):
                found[name] = Outcome("none", ours[block].why)
                break
    return found


def unknown_command(why: str) -> str:
    """Return the command that an error calls unknown, as ``zadd`` or ``client|x``; empty if none.

    >>> unknown_command("ERR unknown command 'ZADD', with args beginning with: 'z'")
    'zadd'
    >>> unknown_command("ERR unknown subcommand 'load'. Try FUNCTION HELP.")
    'function|load'
    """
    part, whole = _UNKNOWN_PART.search(why), _UNKNOWN.search(why)
    if part is not None:
        return f"{part[2]}|{part[1]}".lower()
    return whole[1].lower() if whole is not None else ""


def explain(findings: Iterable[Finding], explanations: list[Explanation]) -> list[Explained]:
    """Explain findings that are not better."""
    return [_explained(one, explanations) for one in findings if not one.is_better()]


def _explained(finding: Finding, explanations: list[Explanation]) -> Explained:
    command = unknown_command(finding.ours.why)
    for one in explanations:
        if one.tests and finding.name in one.tests and finding.file in one.files:
            return Explained(finding, one, "")
    for one in explanations:
        if one.error and one.error in finding.ours.why:
            return Explained(finding, one, "")
    for one in explanations:
        if not one.tests and not one.error and command in one.commands:
            return Explained(finding, one, command)
    return Explained(finding, None, command)


def stale(
    explanations: list[Explanation], explained: list[Explained], files: Iterable[str]
) -> Iterator[str]:
    """Yield what explains no difference of ``files``. Commands and errors occur in any file, so they are
    judged only if each of the explained findings is given, which are those of all files."""
    tests = {(one.finding.file, one.finding.name) for one in explained}
    commands = {one.command for one in explained}
    errors = {one.explanation.error for one in explained if one.explanation is not None}
    ran = set(files)
    for one in explanations:
        if one.tests:
            pairs = ((file, test) for file in one.files if file in ran for test in one.tests)
            yield from (f"{file}: {test}" for file, test in pairs if (file, test) not in tests)
        elif one.error:
            if one.error not in errors:
                yield f"error: {one.error}"
        else:
            yield from (f"command: {name}" for name in one.commands if name not in commands)
