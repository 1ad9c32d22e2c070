"""Says which tests may be skipped when everything is required. Every other skip is a failure.

``CI_PEERS_REQUIRED=1``, which ``.ci/run`` sets, means that every peer, tool and library is installed. A
test that is skipped then has checked nothing, so it fails, unless `LEGITIMATE` lists its reason. Without
that variable skips stay skips, and the run ends with a line for each missing peer.

`tests/conftest.py` installs the hooks.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Final, NamedTuple

import pytest

from tests import peers

MISSING: Final = "peer did not run: "
"""The beginning of the text of `peers.PeerMissing`."""


class Legitimate(NamedTuple):
    """A permitted skip. ``text`` is part of its reason. ``why`` says where the same is checked instead, or
    why it cannot be. ``plain``: permitted in the compiled run only, because the plain run has the test."""

    text: str
    why: str
    plain: bool = False


LEGITIMATE: Final = (
    Legitimate("root may write everywhere", "file permissions do not bind root"),
    Legitimate("root may read everything", "file permissions do not bind root"),
    Legitimate(
        "no file system can be mounted here",
        "a container without the right to mount; test_journal_disk.py fills a disk in memory, "
        "and test_read_only.py reads without the right to write",
    ),
    Legitimate("this machine has no network", "needs an address other than the loopback's"),
    Legitimate("valgrind is missing", "only `make bench-compare` counts, and it fails without"),
    Legitimate(
        "looks are counted in plain Python", "the plain run (`make plain`) counts them", plain=True
    ),
    Legitimate(
        "the compiled module calls the system itself",
        "the plain run (`make plain`) has the errors that a system may return",
        plain=True,
    ),
    Legitimate(
        "a compiled engine cannot be broken from outside",
        "the plain run (`make plain`) plants the faults",
        plain=True,
    ),
)


def may_skip(reason: str) -> bool:
    """Whether a test may be skipped for this reason when everything is required."""
    compiled = os.environ.get("HEADWATER_PURE") != "1"
    return any(one.text in reason for one in LEGITIMATE if compiled or not one.plain)


def refusal(reason: str) -> str:
    """Return the failure text for a test that may not be skipped."""
    return (
        f"skipped, although CI_PEERS_REQUIRED=1: {reason}\n"
        "Install what is missing, or name the reason in tests/skips.py"
    )


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test or a file was skipped."""
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip that is not permitted into a failure. An expected failure does not count as a skip."""
    if report.skipped and peers.required() and not hasattr(report, "wasxfail"):
        reason = reason_of(report)
        if not may_skip(reason):
            report.outcome = "failed"
            report.longrepr = refusal(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge a whole file that importorskip skipped."""
    report = yield
    judge(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each peer that tests were skipped for, including tests in other processes."""
    reasons = [reason_of(report) for report in terminalreporter.stats.get("skipped", [])]
    lines = {reason[reason.index(MISSING) :] for reason in reasons if MISSING in reason}
    for line in sorted(lines):
        terminalreporter.write_line(line, yellow=True)
