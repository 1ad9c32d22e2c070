"""Fixtures that every room of tests may use, and the summary line about peers that did not run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import settings

from tests import peers

settings.register_profile("headwater", deadline=None)  # benchmarks judge speed, no test does
settings.load_profile("headwater")

MISSING = "peer did not run: "
"""How the text of `peers.PeerMissing` begins."""

StartPeer = Callable[..., peers.Peer]


def _start(stack: ExitStack, name: str, *arguments: str, unixsocket: bool = False) -> peers.Peer:
    try:
        return stack.enter_context(peers.running(name, *arguments, unixsocket=unixsocket))
    except peers.PeerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def peer() -> Iterator[StartPeer]:
    """Starts a peer for this test alone: ``peer("redis-8.2", "--appendonly", "yes")``."""
    with ExitStack() as stack:
        yield lambda name, *arguments, unixsocket=False: _start(
            stack, name, *arguments, unixsocket=unixsocket
        )


@pytest.fixture(scope="session")
def _peers_of_this_run() -> Iterator[Callable[[str], peers.Peer]]:
    started: dict[str, peers.Peer] = {}
    with ExitStack() as stack:

        def give(name: str) -> peers.Peer:
            if name not in started:
                started[name] = _start(stack, name, unixsocket=True)
            return started[name]

        yield give


@pytest.fixture
def shared_peer(
    _peers_of_this_run: Callable[[str], peers.Peer],
) -> Callable[[str], peers.Peer]:
    """Gives a peer that all tests of a process share, empty: ``shared_peer("redis-8.2")``.

    Settings that a test changes stay changed; such a test takes `peer`.
    """

    def give(name: str) -> peers.Peer:
        server = _peers_of_this_run(name)
        peers.flush(server)
        return server

    return give


@pytest.fixture
def redis_cli() -> str:
    """The path of redis-cli; the test is skipped by name where it is missing."""
    found = peers.redis_cli()
    if found is None:
        pytest.skip(str(peers.PeerMissing("redis-cli")))
    return str(found)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where peers are required, a test that was skipped for want of one has failed."""
    report = yield
    if report.skipped and peers.required() and MISSING in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = _skip_reason(report)
    return report


def _skip_reason(report: pytest.TestReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each peer that tests were skipped for, also when they ran in other processes."""
    lines = set()
    for report in terminalreporter.stats.get("skipped", []):
        reason = _skip_reason(report)
        if MISSING in reason:
            lines.add(reason[reason.index(MISSING) :])
    for line in sorted(lines):
        terminalreporter.write_line(line, yellow=True)
